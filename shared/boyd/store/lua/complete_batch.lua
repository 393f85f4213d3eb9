-- Complete a batch with what its observers saw; the last one that is completed ends the observe phase, exactly once.
-- number     the batch's
-- attempt    its fencing token
-- worker     as it entered; empty if none has, and the sweeper gives the batch up
-- given_up   1: the sweeper gives it up
-- wait, successor  as in `leave_phase`
-- fields     field, value, ... to store
-- Returns {'ok', batches still open, epoch}, followed by now and {run hash, ...} when the successor has entered orient, which
--         claims what waits; or {'stale'}
-- Events  phase, run.investigating
local iteration, due, runs_pending, intake, intake_waiting, events = unpack(KEYS)
local n, number, attempt, worker, wait, successor, given_up = unpack(ARGV, 1, 7)
-- @include claim_work expect forget_batch move_on owns_phase rest time with_step
local fields = rest(8)
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
if open ~= 0 then
  expect(due, 'zset')
  store(iteration, fields)
  forget_batch(number)
  -- Too many are counted if it fails halfway: `watch_batches` finds that.
  redis.call('HSET', iteration, 'open', open)
  return {'ok', open, tonumber(have[2])}
end
fields[#fields + 1] = 'open'
fields[#fields + 1] = open
if successor == '' then
  move_on('observe', 'orient', wait, nil, have, fields)
  forget_batch(number)
  return {'ok', open, tonumber(have[2])}
end
local claim = read_work()
for _, value in ipairs(claim.fields) do
  fields[#fields + 1] = value
end
move_on('observe', 'orient', wait, nil, have, fields, successor)
forget_batch(number)
return {'ok', open, tonumber(have[2]), now_ms(), take_work(claim, n)}
