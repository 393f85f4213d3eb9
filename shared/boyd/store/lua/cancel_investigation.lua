-- Cancel an investigation: nothing more is started for it, and its next worker ends it.
-- by         the principal
-- request    the same when it is repeated, or empty
-- Returns 'ok', also when it was cancelled before by this request or has not ended yet, 'over' or 'unknown'
-- Events  investigation.cancelled
local investigation, due, events, audit_open = unpack(KEYS)
local id, by, request = unpack(ARGV, 1, 3)
-- @include audit emit expect rest stop_investigation
local actor = rest(4)
local have = redis.call('HMGET', investigation, 'status', 'cancelRequest')
local status = have[1]
if not status then
  return 'unknown'
end
if request ~= '' and have[2] == request then
  return 'ok'
end
if status == 'ended' then
  return 'over'
end
expect(due, 'zset', audit_open, 'stream')
if stop_investigation(id, by) then
  redis.call('HSET', investigation, 'cancelRequest', request)
  emit('investigation.cancelled', 'investigation', id)
  audit('investigation.cancelled', 'investigation', id, 'before', status, unpack(actor))
end
return 'ok'
