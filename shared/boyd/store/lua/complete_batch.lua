-- Complete a batch with what its observers saw; the last one that is completed ends the observe phase, exactly once.
-- number     the batch's
-- attempt    its fencing token
-- worker     as it entered; empty if none has, and the sweeper gives the batch up
-- given_up   1: the sweeper gives it up
-- fields     field, value, ... to store
-- Returns {'ok', batches still open, epoch} or {'stale'}
-- Events  phase
local iteration, due, events = unpack(KEYS)
local n, number, attempt, worker, resend_after, given_up = unpack(ARGV, 1, 6)
-- @include close_batch expect rest time with_step
local fields = rest(7)
local batch = 'batch:' .. number
local have = redis.call('HMGET', iteration, 'iteration', 'phase', batch .. ':attempt', batch .. ':by', 'epoch',
  batch .. ':at', 'startedAt', 'steps')
if have[1] ~= n or have[2] ~= 'observe' or have[3] ~= attempt or (have[4] or '') ~= worker then
  return {'stale'}
end
expect(due, 'zset')
store(iteration, fields)
if given_up == '1' and have[4] then
  local steps = with_step(have[8], 'observe', have[6], now_ms(), have[7], have[4], number .. '.' .. attempt)
  redis.call('HSET', iteration, 'steps', steps)
end
return {'ok', close_batch(number, resend_after), tonumber(have[5])}
