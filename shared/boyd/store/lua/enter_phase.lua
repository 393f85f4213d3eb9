-- Enter a phase if it is due under this epoch and no worker has entered it. The lease starts here.
-- worker     proves the entry when leaving
-- lease      ms until the phase is given to somebody else unless renewed
-- fields     of the record to return; none: the caller reads all of it itself, which here would take far longer
-- Returns {'ok', now, {field, value, ...}}, {'stale'}, or {'newer', format version}
local iteration, due = unpack(KEYS)
local n, epoch, phase, worker, lease = unpack(ARGV, 1, 5)
-- @include expect format rest time
local fields = rest(6)
local have = redis.call('HMGET', iteration, 'iteration', 'epoch', 'phase', 'entered', 'formatVersion')
if have[1] ~= n or have[2] ~= epoch or have[3] ~= phase or have[4] then
  return {'stale'}
end
if newer(have[5]) then
  return {'newer', newer(have[5])}
end
expect(due, 'zset')
local now = now_ms()
redis.call('HSET', iteration, 'entered', worker, 'phaseAt', now)
redis.call('ZADD', due, now + lease, 'phase')
local record = {}
local values = #fields > 0 and redis.call('HMGET', iteration, unpack(fields)) or {}
for i, field in ipairs(fields) do
  if values[i] then
    record[#record + 1] = field
    record[#record + 1] = values[i]
  end
end
return {'ok', now, record}
