-- Say something more in a conversation that has come to an end: it goes on.
-- KEYS[1] investigation  hash: the job
-- KEYS[2] log        stream: its entries
-- KEYS[3] due        zset: what must move on, by deadline
-- KEYS[4] events     stream
-- KEYS[5] audit      stream: what is not sealed yet
-- ARGV[1] id
-- ARGV[2] entry      as JSON
-- ARGV[3] queue      short name
-- ARGV[4] resend_after   ms a message may take to reach a worker
-- ARGV[5] request    the same when it is repeated, or empty
-- ARGV[6...] field, value, ... of the actor for the audit
-- Returns {'ok', attempt}, {'busy'} or {'unknown'}
-- Events  investigation.started
-- @include common
-- @include audit
-- @include list_job
local have = redis.call('HMGET', KEYS[1], 'status', 'executionState', 'saidRequest', 'executionAttempt')
if not have[1] then
  return {'unknown'}
end
if ARGV[5] ~= '' and have[3] == ARGV[5] then
  return {'ok', have[4]}
end
if have[1] ~= 'ended' or have[2] == 'queued' or have[2] == 'running' then
  return {'busy'}
end
local now = now_ms()
list_job(KEYS[1], KEYS[3], 'investigation:' .. ARGV[1], now + ARGV[4])
redis.call('PERSIST', KEYS[1])
redis.call('PERSIST', KEYS[2])
redis.call('XADD', KEYS[2], '*', 'entry', ARGV[2])
redis.call('HDEL', KEYS[1], 'ending', 'detail', 'text', 'findings', 'endedAt', 'executionEndedAt', 'executionNotBefore',
  'cancelled', 'cancelledBy')
-- What was lost of the last question does not count against this one.
local attempt = redis.call('HINCRBY', KEYS[1], 'executionAttempt', 1)
redis.call('HSET', KEYS[1], 'status', 'running', 'updatedAt', now, 'executionState', 'queued', 'executionBase',
  attempt - 1, 'executionResends', 0, 'queuedAt', now, 'queue', ARGV[3], 'reflection', '{}', 'server', server_id(),
  'saidRequest', ARGV[5])
redis.call('HINCRBY', KEYS[1], 'version', 1)
emit(KEYS[4], 'investigation.started', 'investigation', ARGV[1])
audit(KEYS[5], 'investigation.continued', 'investigation', ARGV[1], unpack(ARGV, 6))
return {'ok', attempt}
