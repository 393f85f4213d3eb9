-- Abandon the iteration in flight: fence off its workers, and make complete the only next phase.
-- meant      number of the iteration to abandon, or empty: the one in flight
-- why        reason, for its record
-- last       1: no other iteration follows it, even if work waits
-- Returns {'abandoned', n, epoch}, also when it was abandoned before, {'over', n of the one in flight} when that is
--         another one, or {'idle'}
-- Events  iteration.abandoned, phase
local iteration, due, events, audit_open = unpack(KEYS)
local meant, why, resend_after, last = unpack(ARGV, 1, 4)
-- @include audit expect forget_batch move_on rest
local actor = rest(5)
local have = redis.call('HMGET', iteration, 'iteration', 'phase', 'epoch', 'batches', 'abandoned')
local n, phase = have[1], have[2]
if not n or not phase then
  return {'idle'}
end
if meant ~= '' and meant ~= n then
  return {'over', tonumber(n)}
end
expect(due, 'zset', audit_open, 'stream')
if last == '1' then
  redis.call('HSET', iteration, 'last', 1)
end
if have[5] then
  return {'abandoned', tonumber(n), tonumber(have[3])}
end
audit('loop.abandoned', 'iteration', n, 'before', phase, 'after', 'failed', 'note', why, unpack(actor))
local epoch = redis.call('HINCRBY', iteration, 'epoch', 1)
for k = 1, tonumber(have[4]) or 0 do
  forget_batch(k)
end
redis.call('HSET', iteration, 'error', why, 'abandoned', phase)
move_on(phase, 'complete', resend_after)
emit('iteration.abandoned', 'iteration', n, 'why', why)
return {'abandoned', tonumber(n), epoch}
