-- Enter a batch of the observe phase if it is open under this attempt and no worker has entered it.
-- number     the batch's
-- attempt    its fencing token
-- Returns {'ok', batch as JSON, ms since the iteration's start, id of its build}, {'stale'}, or {'newer', format version}
local iteration, due = unpack(KEYS)
local n, number, attempt, worker, lease = unpack(ARGV)
-- @include format time
local batch = 'batch:' .. number
local have = redis.call('HMGET', iteration, 'iteration', 'phase', batch .. ':attempt', batch .. ':by', batch, 'formatVersion',
  'startedAt', 'build')
if have[1] ~= n or have[2] ~= 'observe' or have[3] ~= attempt or have[4] then
  return {'stale'}
end
if newer(have[6]) then
  return {'newer', newer(have[6])}
end
local now = now_ms()
-- First, as this is the key that was not read: if it is of another kind, nothing is changed.
redis.call('ZADD', due, now + lease, batch)
redis.call('HSET', iteration, batch .. ':by', worker, batch .. ':at', now)
return {'ok', have[5], now - (tonumber(have[7]) or now), have[8] or ''}
