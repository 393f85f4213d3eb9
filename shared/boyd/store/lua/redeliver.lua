-- Send a callback once more, from the beginning of its plan; one that is on its way goes on as it is.
-- KEYS[1] callback   hash
-- KEYS[2] due        zset: what must move on, by deadline
-- KEYS[3] audit      stream: what is not sealed yet
-- ARGV[1] name       `callback:…`
-- ARGV[2] keep       ms that it can be looked up; longer than the plan
-- ARGV[3...] field, value, ... of the actor for the audit
-- Returns 1, or 0 when there is none
-- @include common
-- @include audit
-- @include list_job
local state = redis.call('HGET', KEYS[1], 'executionState')
if not state then
  return 0
end
if state ~= 'running' then
  list_job(KEYS[1], KEYS[2], ARGV[1], now_ms())
  redis.call('HSET', KEYS[1], 'executionState', 'queued', 'executionAttempt', 1, 'executionResends', 0,
    'queuedAt', now_ms(), 'tries', 0)
  redis.call('HDEL', KEYS[1], 'executionNotBefore')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
audit(KEYS[3], 'callback.redelivered', 'run', redis.call('HGET', KEYS[1], 'id'), unpack(ARGV, 3))
return 1
