-- Record how an execution ended; saying so twice is the same as once. Who lost the claim is refused; what it reports is kept beside the entry.
-- KEYS[1] execution  hash: the ledger's entry
-- KEYS[2] audit      stream: what is not sealed yet
-- ARGV[1] token
-- ARGV[2] state      succeeded, failed or unknown
-- ARGV[3] result     JSON
-- Returns 1, or 0 when the claim was lost
-- @include common
-- @include audit
local have = redis.call('HMGET', KEYS[1], 'state', 'token', 'id', 'action', 'by', 'host', 'worker')
if have[1] == ARGV[2] and have[2] == ARGV[1] then
  return 1
end
if have[1] ~= 'running' or have[2] ~= ARGV[1] then
  if have[1] then
    redis.call('HSET', KEYS[1], 'lateResult', ARGV[3])
  end
  return 0
end
-- The audit first: where it is refused the outcome is reported again, and otherwise it would be taken for recorded.
audit(KEYS[2], 'action.' .. ARGV[2], 'execution', have[3], 'action', have[4], 'host', have[6], 'worker', have[7],
  'before', 'running', 'after', ARGV[2], 'who', have[5])
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'result', ARGV[3], 'endedAt', now_ms())
return 1
