-- Job something of a worker on behalf of a client: to execute an action, try it out, undo it, or answer a request.
-- KEYS[1] call       hash
-- KEYS[2] due        zset: what must move on, by deadline
-- KEYS[3] audit      stream: what is not sealed yet
-- ARGV[1] id
-- ARGV[2] resend_after   ms a message may take to reach a worker
-- ARGV[3] queue      short name, or empty: the usual one
-- ARGV[4] keep       ms that the call is kept
-- ARGV[5] kind       for the audit, or empty: it changes nothing
-- ARGV[6] fields     how many of the following arguments are field, value, ... to store
-- ARGV[7...] fields, then field, value, ... of the actor for the audit
-- Returns 1, or 0 when it was ordered before
-- @include common
-- @include audit
-- @include list_job
-- @include place_job
if redis.call('HEXISTS', KEYS[1], 'executionState') == 1 then
  return 0
end
-- The job itself last: what fails halfway was not taken, and is taken when it comes again.
local actor = 7 + ARGV[6]
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'createdAt', now_ms(), unpack(ARGV, 7, actor - 1))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
if ARGV[5] ~= '' then
  local have = redis.call('HMGET', KEYS[1], 'action', 'undoes', 'rationale')
  audit(KEYS[3], 'call.' .. ARGV[5], 'call', ARGV[1], 'action', have[1], 'undoes', have[2], 'note', have[3], unpack(ARGV, actor))
end
place_job(KEYS[1], KEYS[2], 'call:' .. ARGV[1], ARGV[3], ARGV[2])
return 1
