-- Abandon the iteration in flight: shut out whoever works on it, and let nothing but its end follow.
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] due        zset: what must move on, by deadline
-- KEYS[3] events     stream
-- KEYS[4] audit      stream: what is not sealed yet
-- ARGV[1] n          the iteration that is meant, or empty: whichever is in flight
-- ARGV[2] why        for its record
-- ARGV[3] resend_after   ms until a worker is asked to end it, unless the caller has
-- ARGV[4] last       1: no other iteration follows it, even if work waits
-- ARGV[5...] field, value, ... of the actor for the audit
-- Returns {'abandoned', n, epoch}, also when it was abandoned before, {'over', n of the one in flight} when that is
--         another one, or {'idle'}
-- Events  iteration.abandoned, phase
-- @include common
-- @include audit
-- @include move_on
-- @include forget_batch
local have = redis.call('HMGET', KEYS[1], 'iteration', 'phase', 'epoch', 'batches', 'abandoned')
local n, phase = have[1], have[2]
if not n or not phase then
  return {'idle'}
end
if ARGV[1] ~= '' and ARGV[1] ~= n then
  return {'over', tonumber(n)}
end
if ARGV[4] == '1' then
  redis.call('HSET', KEYS[1], 'last', 1)
end
if have[5] then
  return {'abandoned', tonumber(n), tonumber(have[3])}
end
audit(KEYS[4], 'loop.abandoned', 'iteration', n, 'before', phase, 'after', 'failed', 'note', ARGV[2], unpack(ARGV, 5))
local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
for k = 1, tonumber(have[4]) or 0 do
  forget_batch(KEYS[1], KEYS[2], k)
end
redis.call('HSET', KEYS[1], 'error', ARGV[2], 'abandoned', phase)
move_on(KEYS[1], KEYS[2], KEYS[3], phase, 'complete', ARGV[3])
emit(KEYS[3], 'iteration.abandoned', 'iteration', n, 'why', ARGV[2])
return {'abandoned', tonumber(n), epoch}
