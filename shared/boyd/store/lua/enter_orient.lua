-- Enter the orient phase: as `enter_phase`, and once per iteration claim what waits: pending runs, most urgent first, and
-- observations from outside. What arrives after this waits for the follow-up iteration.
-- Returns {'ok', now, {run hash, ...}}, {'stale'}, or {'newer', format version}; the caller reads the record itself,
--         which here would take far longer
-- Events  run.investigating
local iteration, due, runs_pending, intake, intake_waiting, events = unpack(KEYS)
local n, epoch, worker, lease = unpack(ARGV)
-- @include emit expect format intake time
local have = redis.call('HMGET', iteration, 'iteration', 'epoch', 'phase', 'entered', 'runs', 'formatVersion')
if have[1] ~= n or have[2] ~= epoch or have[3] ~= 'orient' or have[4] then
  return {'stale'}
end
if newer(have[6]) then
  return {'newer', newer(have[6])}
end
local now = now_ms()
local ids, batch, fields = have[5], nil, {}
if not ids then
  ids, batch = table.concat(redis.call('ZRANGE', runs_pending, 0, 99), ' '), read_intake()
  fields = {'runs', ids, 'intake', batch.taken, 'intakeTimes', batch.times}
else
  expect(runs_pending, 'zset')
end
for id in string.gmatch(ids, '%S+') do
  expect(key('run', id), 'hash')
end
-- First, as this is the key that was not read: if it is of another kind, nothing is changed.
redis.call('ZADD', due, now + lease, 'phase')
-- A claim is noted before it is taken, so that the next attempt completes one that fails halfway.
redis.call('HSET', iteration, 'entered', worker, 'phaseAt', now, unpack(fields))
if batch then
  remove_intake(batch)
end
local claimed = {}
for id in string.gmatch(ids, '%S+') do
  local run = key('run', id)
  local status = redis.call('HGET', run, 'status')
  if status == 'pending' then
    redis.call('HSET', run, 'status', 'investigating', 'iteration', n, 'updatedAt', now)
    emit('run.investigating', 'run', id, 'iteration', n)
  end
  redis.call('ZREM', runs_pending, id)
  -- A cancelled one may have been forgotten since an attempt before this one claimed it.
  if status and status ~= 'cancelled' then
    claimed[#claimed + 1] = redis.call('HGETALL', run)
  end
end
return {'ok', now, claimed}
