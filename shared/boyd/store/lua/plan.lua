-- Leave the start phase: open the batches of the observe phase; with none, orient is due.
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] due        zset: what must move on, by deadline
-- KEYS[3] events     stream
-- KEYS[4] ran        hash: observer id to when it last ran, in ms
-- ARGV[1] n
-- ARGV[2] epoch
-- ARGV[3] worker
-- ARGV[4] resend_after   ms
-- ARGV[5] observers  JSON: the observer of each task, by index
-- ARGV[6] problems   JSON
-- ARGV[7] blocks     JSON: guards that failed
-- ARGV[8] not due    JSON: observers that this iteration leaves out
-- ARGV[9] count      how many fields follow, twice: field, value, ... of observers that could not be planned
-- ARGV[...] count    how many observers run, then their ids
-- ARGV[...] batches    as JSON
-- Returns 'ok' or 'stale'
-- Events  phase
-- @include common
-- @include holds
-- @include move_on
-- @include forget_batch
if not holds(KEYS[1], ARGV[1], ARGV[2], 'start', ARGV[3]) then
  return 'stale'
end
local now = now_ms()
local fields = tonumber(ARGV[9])
local ran = 10 + fields
local first = ran + ARGV[ran]
local batches = #ARGV - first
if ARGV[2] ~= '1' then
  -- An attempt before this one may have left batches behind, if its script failed halfway.
  local k = batches + 1
  while forget_batch(KEYS[1], KEYS[2], k) do
    k = k + 1
  end
end
-- The phase changes only when everything is there that it needs.
for k = 1, batches do
  local batch = 'batch:' .. k
  redis.call('HSET', KEYS[1], batch, ARGV[first + k], batch .. ':attempt', 1, batch .. ':sentAt', now)
  redis.call('ZADD', KEYS[2], now + ARGV[4], batch)
end
for i = 10, 9 + fields, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'observers', ARGV[5], 'problems', ARGV[6], 'blocks', ARGV[7], 'notDue', ARGV[8],
  'open', batches, 'batches', batches)
-- While observers run, the phase is due now and then all the same: to see that their batches are (`watch_batches`).
move_on(KEYS[1], KEYS[2], KEYS[3], 'start', batches > 0 and 'observe' or 'orient', batches > 0 and 2 * ARGV[4] or ARGV[4])
for i = ran + 1, first do
  redis.call('HSET', KEYS[4], ARGV[i], now)
end
redis.call('PEXPIRE', KEYS[4], 2592000000)
return 'ok'
