-- Leave the start phase: open the batches of the observe phase; with none, orient is due.
-- ran        ids of the observers that run
-- batches    JSON of each
-- fields     field, value, ... to store
-- wait       ms until each batch, or orient, is overdue
-- successor  as in `leave_phase`; it enters the only batch, or without batches orient; none with several batches, which are for several workers
-- Returns {'ok', now, {run hash, ...} if orient was entered}, or {'stale'} when the entry was lost
-- Events  phase, run.investigating
local iteration, due, runs_pending, intake, intake_waiting, events, observers_ran = unpack(KEYS)
local n, epoch, worker, wait, successor, ran, batches = unpack(ARGV, 1, 7)
-- @include claim_work expect forget_batch move_on owns_phase rest time
local fields = rest(8)
local have = owns_phase(iteration, n, epoch, 'start', worker)
if not have then
  return {'stale'}
end
expect(observers_ran, 'hash')
ran, batches = cjson.decode(ran), cjson.decode(batches)
local now, takes = now_ms(), successor ~= ''
local claim = takes and #batches == 0 and read_work()
if epoch ~= '1' then
  expect(due, 'zset')
  -- An attempt before this one may have left batches behind.
  local k = #batches + 1
  while forget_batch(k) do
    k = k + 1
  end
end
local function add(list)
  for _, value in ipairs(list) do
    fields[#fields + 1] = value
  end
end
-- The phase changes only when everything is there that it needs, or in the same step. The first write is to `due`: if that
-- is of another kind, nothing is changed.
for k, text in ipairs(batches) do
  local batch = 'batch:' .. k
  add({batch, text, batch .. ':attempt', 1, batch .. ':sentAt', now})
  if takes then
    add({batch .. ':by', successor, batch .. ':at', now})
  end
  redis.call('ZADD', due, now + wait, batch)
end
add({'open', #batches, 'batches', #batches})
-- While observers run, the phase is due now and then all the same: to see that their batches are (`watch_batches`).
if #batches > 0 then
  move_on('start', 'observe', 2 * wait, nil, have, fields)
else
  add(claim and claim.fields or {})
  move_on('start', 'orient', wait, nil, have, fields, successor)
end
local times = {}
for _, observer in ipairs(ran) do
  times[#times + 1] = observer
  times[#times + 1] = now
end
store(observers_ran, times)
redis.call('PEXPIRE', observers_ran, 2592000000)
return {'ok', now, claim and take_work(claim, n) or nil}
