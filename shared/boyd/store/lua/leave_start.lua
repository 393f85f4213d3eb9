-- Leave the start phase: open the batches of the observe phase; with none, orient is due.
-- ran        ids of the observers that run
-- batches    JSON of each
-- fields     field, value, ... to store
-- Returns 1, or 0 when the entry was lost
-- Events  phase
local iteration, due, events, observers_ran = unpack(KEYS)
local n, epoch, worker, resend_after, ran, batches = unpack(ARGV, 1, 6)
-- @include expect forget_batch move_on owns_phase rest
local fields = rest(7)
local have = owns_phase(iteration, n, epoch, 'start', worker)
if not have then
  return 0
end
expect(observers_ran, 'hash')
ran, batches = cjson.decode(ran), cjson.decode(batches)
local now = now_ms()
if epoch ~= '1' then
  expect(due, 'zset')
  -- An attempt before this one may have left batches behind.
  local k = #batches + 1
  while forget_batch(k) do
    k = k + 1
  end
end
-- The phase changes only when everything is there that it needs, or in the same step. The first write is to `due`: if that
-- is of another kind, nothing is changed.
for k, text in ipairs(batches) do
  local batch = 'batch:' .. k
  for _, value in ipairs({batch, text, batch .. ':attempt', 1, batch .. ':sentAt', now}) do
    fields[#fields + 1] = value
  end
  redis.call('ZADD', due, now + resend_after, batch)
end
for _, value in ipairs({'open', #batches, 'batches', #batches}) do
  fields[#fields + 1] = value
end
-- While observers run, the phase is due now and then all the same: to see that their batches are (`watch_batches`).
if #batches > 0 then
  move_on('start', 'observe', 2 * resend_after, nil, have, fields)
else
  move_on('start', 'orient', resend_after, nil, have, fields)
end
local times = {}
for _, observer in ipairs(ran) do
  times[#times + 1] = observer
  times[#times + 1] = now
end
store(observers_ran, times)
redis.call('PEXPIRE', observers_ran, 2592000000)
return 1
