-- Enter a phase: is it due under this epoch, and has nobody entered it? The lease starts here.
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] due        zset: what must move on, by deadline
-- ARGV[1] n
-- ARGV[2] epoch
-- ARGV[3] phase
-- ARGV[4] worker     proves the entry when leaving
-- ARGV[5] lease      ms until the phase is given to somebody else unless renewed
-- ARGV[6...] fields   of the record to return; none: the caller reads all of it itself, which here would take far longer
-- Returns {'ok', now, {field, value, ...}} or {'stale'}
-- @include common
local have = redis.call('HMGET', KEYS[1], 'iteration', 'epoch', 'phase', 'entered')
if have[1] ~= ARGV[1] or have[2] ~= ARGV[2] or have[3] ~= ARGV[3] or have[4] then
  return {'stale'}
end
local now = now_ms()
redis.call('HSET', KEYS[1], 'entered', ARGV[4], 'phaseAt', now)
redis.call('ZADD', KEYS[2], now + ARGV[5], 'phase')
local record = {}
for i = 6, #ARGV do
  local value = redis.call('HGET', KEYS[1], ARGV[i])
  if value then
    record[#record + 1] = ARGV[i]
    record[#record + 1] = value
  end
end
return {'ok', now, record}
