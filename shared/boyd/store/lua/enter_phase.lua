-- Enter a phase if it is due under this epoch and no worker has entered it. The lease starts here.
-- worker     proves the entry when leaving
-- lease      ms until the phase is given to somebody else unless renewed
-- fields     of the record to return; none: the caller reads all of it itself, which here would take far longer
-- Returns {'ok', now, {field, value, ...}}, {'stale'}, or {'newer', format version}
local iteration, due = unpack(KEYS)
local n, epoch, phase, worker, lease = unpack(ARGV, 1, 5)
-- @include format rest time
local fields = rest(6)
local have = redis.call('HMGET', iteration, 'iteration', 'epoch', 'phase', 'entered', 'formatVersion', unpack(fields))
if have[1] ~= n or have[2] ~= epoch or have[3] ~= phase or have[4] then
  return {'stale'}
end
if newer(have[5]) then
  return {'newer', newer(have[5])}
end
local now = now_ms()
-- First, as this is the key that was not read: if it is of another kind, nothing is changed.
redis.call('ZADD', due, now + lease, 'phase')
redis.call('HSET', iteration, 'entered', worker, 'phaseAt', now)
local record = {}
for i, field in ipairs(fields) do
  if have[5 + i] then
    record[#record + 1] = field
    record[#record + 1] = have[5 + i]
  end
end
return {'ok', now, record}
