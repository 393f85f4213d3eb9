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
if not owns_phase(iteration, n, epoch, 'start', worker) then
  return 0
end
expect(due, 'zset', observers_ran, 'hash')
ran, batches = cjson.decode(ran), cjson.decode(batches)
local now = now_ms()
if epoch ~= '1' then
  -- An attempt before this one may have left batches behind.
  local k = #batches + 1
  while forget_batch(k) do
    k = k + 1
  end
end
-- The phase changes only when everything is there that it needs.
for k, text in ipairs(batches) do
  local batch = 'batch:' .. k
  redis.call('HSET', iteration, batch, text, batch .. ':attempt', 1, batch .. ':sentAt', now)
  redis.call('ZADD', due, now + resend_after, batch)
end
store(iteration, fields)
redis.call('HSET', iteration, 'open', #batches, 'batches', #batches)
-- While observers run, the phase is due now and then all the same: to see that their batches are (`watch_batches`).
if #batches > 0 then
  move_on('start', 'observe', 2 * resend_after)
else
  move_on('start', 'orient', resend_after)
end
for _, observer in ipairs(ran) do
  redis.call('HSET', observers_ran, observer, now)
end
redis.call('PEXPIRE', observers_ran, 2592000000)
return 1
