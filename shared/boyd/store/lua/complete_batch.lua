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
-- @include expect forget_batch move_on owns_phase rest time with_step
local fields = rest(7)
local batch = 'batch:' .. number
local have = read_phase(iteration, 'open', batch .. ':attempt', batch .. ':by', batch .. ':at')
local current, entered, began = unpack(have, 10, 12)
if have[1] ~= n or have[3] ~= 'observe' or current ~= attempt or (entered or '') ~= worker then
  return {'stale'}
end
if given_up == '1' and entered then
  have[7] = with_step(have[7], 'observe', began, now_ms(), have[6], entered, number .. '.' .. attempt)
  fields[#fields + 1] = 'steps'
  fields[#fields + 1] = have[7]
end
local open = (tonumber(have[9]) or 0) - 1
if open == 0 then
  fields[#fields + 1] = 'open'
  fields[#fields + 1] = open
  move_on('observe', 'orient', resend_after, nil, have, fields)
  forget_batch(number)
else
  expect(due, 'zset')
  store(iteration, fields)
  forget_batch(number)
  -- Too many are counted if it fails halfway: `watch_batches` finds that.
  redis.call('HSET', iteration, 'open', open)
end
return {'ok', open, tonumber(have[2])}
