-- Have an iteration look at what has come: one that begins now, or after the one in flight or the pause (L3).
-- KEYS[1] loop       hash: counter, iteration in flight, last slot, paused
-- KEYS[2] iteration  hash: the iteration in flight
-- KEYS[3] due        zset: what must move on, by deadline
-- KEYS[4] events     stream
-- ARGV[1] trigger    for the record
-- ARGV[2] resend_after   ms a message may take to reach a worker
-- Returns the number of the iteration that began, or 0
-- Events  iteration.started
-- @include common
-- @include begin_iteration
if redis.call('HGET', KEYS[1], 'active') or redis.call('HGET', KEYS[1], 'paused') then
  redis.call('HSET', KEYS[1], 'again', 1)
  return 0
end
return begin_iteration(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2])
