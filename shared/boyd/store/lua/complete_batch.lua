-- Complete a batch with what its observers saw; the last one that is completed ends the observe phase, exactly once.
-- number     the batch's
-- attempt    its fencing token
-- worker     as it entered; empty: nobody has, and the sweeper gives the batch up
-- fields     field, value, ... to store
-- Returns {'ok', batches still open, epoch} or {'stale'}
-- Events  phase
local iteration, due, events = unpack(KEYS)
local n, number, attempt, worker, resend_after = unpack(ARGV, 1, 5)
-- @include close_batch expect rest
local fields = rest(6)
local batch = 'batch:' .. number
local have = redis.call('HMGET', iteration, 'iteration', 'phase', batch .. ':attempt', batch .. ':by', 'epoch')
if have[1] ~= n or have[2] ~= 'observe' or have[3] ~= attempt or (have[4] or '') ~= worker then
  return {'stale'}
end
expect(due, 'zset')
store(iteration, fields)
return {'ok', close_batch(number, resend_after), tonumber(have[5])}
