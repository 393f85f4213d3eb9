-- Enter the orient phase: as `enter`, and once per iteration claim what waits: pending runs, most urgent first
-- (L13), and intake events. What arrives after this waits for the follow-up iteration (L3).
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] due        zset: what must move on, by deadline
-- KEYS[3] pending    zset: pending runs by urgency
-- KEYS[4] intake     list: ids of the observations that wait, in order
-- KEYS[5] waiting    hash: those observations
-- KEYS[6] events     stream
-- ARGV[1] n
-- ARGV[2] epoch
-- ARGV[3] worker
-- ARGV[4] lease      ms
-- ARGV[5] prefix     of run hashes; touches those of the claimed runs (same slot)
-- Returns {'ok', now, {run hash, ...}} or {'stale'}; the caller reads the record itself, which here would take far longer
-- Events  run.investigating
-- @include common
-- @include take_intake
local have = redis.call('HMGET', KEYS[1], 'iteration', 'epoch', 'phase', 'entered', 'runs')
if have[1] ~= ARGV[1] or have[2] ~= ARGV[2] or have[3] ~= 'orient' or have[4] then
  return {'stale'}
end
local now = now_ms()
local ids = have[5]
if not ids then
  -- What is claimed is noted before it is taken: what fails halfway is gone on with.
  ids = table.concat(redis.call('ZRANGE', KEYS[3], 0, 99), ' ')
  redis.call('HSET', KEYS[1], 'runs', ids)
  local taken, times = take_intake(KEYS[4], KEYS[5])
  redis.call('HSET', KEYS[1], 'intake', taken, 'intakeTimes', times)
end
redis.call('HSET', KEYS[1], 'entered', ARGV[3], 'phaseAt', now)
redis.call('ZADD', KEYS[2], now + ARGV[4], 'phase')
local runs = {}
for id in string.gmatch(ids, '%S+') do
  local status = redis.call('HGET', ARGV[5] .. id, 'status')
  if status == 'pending' then
    redis.call('HSET', ARGV[5] .. id, 'status', 'investigating', 'iteration', ARGV[1], 'updatedAt', now)
    emit(KEYS[6], 'run.investigating', 'run', id, 'iteration', ARGV[1])
  end
  redis.call('ZREM', KEYS[3], id)
  -- A cancelled one may have been forgotten since an attempt before this one claimed it.
  if status and status ~= 'cancelled' then
    runs[#runs + 1] = redis.call('HGETALL', ARGV[5] .. id)
  end
end
return {'ok', now, runs}
