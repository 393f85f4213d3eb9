-- Send a callback once more, from the beginning of its plan; one that is on its way goes on as it is.
-- name       `callback:…`
-- keep       ms that it can be looked up; longer than the plan
-- Returns 1, or 0 when there is none
local callback, due, audit_open = unpack(KEYS)
local name, keep = unpack(ARGV, 1, 2)
-- @include audit expect rest schedule_job time
local actor = rest(3)
local state = redis.call('HGET', callback, 'executionState')
if not state then
  return 0
end
expect(due, 'zset', audit_open, 'stream')
if state ~= 'running' then
  local now = now_ms()
  schedule_job(name, now)
  redis.call('HSET', callback, 'executionState', 'queued', 'executionAttempt', 1, 'executionResends', 0,
    'queuedAt', now, 'tries', 0)
  redis.call('HDEL', callback, 'executionNotBefore')
  redis.call('PEXPIRE', callback, keep)
end
audit('callback.redelivered', 'run', redis.call('HGET', callback, 'id'), unpack(actor))
return 1
