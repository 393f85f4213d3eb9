-- Let a paused agent go on; work that arrived meanwhile starts an iteration.
-- KEYS[1] loop       hash: counter, iteration in flight, last slot, paused
-- KEYS[2] iteration  hash: the iteration in flight
-- KEYS[3] due        zset: what must move on, by deadline
-- KEYS[4] events     stream
-- KEYS[5] pending    zset: pending runs by urgency
-- KEYS[6] intake     list: what waits from outside
-- KEYS[7] audit      stream: open audit entries
-- ARGV[1] resend_after   ms
-- ARGV[2...] actor   field and value pairs
-- Returns number of the iteration that begins, or 0
-- Events  agent.resumed, iteration.started
-- @include common
-- @include audit
-- @include begin_iteration
-- @include work_waits
if redis.call('HDEL', KEYS[1], 'paused') == 1 then
  emit(KEYS[4], 'agent.resumed')
  audit(KEYS[7], 'agent.resumed', 'before', 'paused', 'after', 'running', unpack(ARGV, 2))
end
if redis.call('HGET', KEYS[1], 'active') or not work_waits(KEYS[1], KEYS[5], KEYS[6]) then
  return 0
end
return begin_iteration(KEYS[1], KEYS[2], KEYS[3], KEYS[4], 'resume', ARGV[1])
