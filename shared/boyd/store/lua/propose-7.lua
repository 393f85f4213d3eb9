-- Queue an action for approval, or find the pending item of the same action and params (A9).
-- KEYS[1] approval   hash: the new item
-- KEYS[2] pending    zset: pending items by deadline
-- KEYS[3] history    zset: resolved items by time
-- KEYS[4] fingerprints  hash: fingerprint to pending item
-- KEYS[5] events     stream
-- KEYS[6] runs       zset: all runs by creation
-- KEYS[7] finished   zset: finished runs by end
-- ARGV[1] id         the same however often one decision is proposed
-- ARGV[2] fingerprint
-- ARGV[3] ttl        ms until it expires, or empty: never
-- ARGV[4] prefix     of approval hashes; touches that of the item found (same slot)
-- ARGV[5] keep age   of history, ms
-- ARGV[6] keep count of history
-- ARGV[7] prefix     of run hashes; touches those that waited for an item that has expired (same slot)
-- ARGV[8] keep age   of finished runs, ms
-- ARGV[9] keep count of finished runs
-- ARGV[10] summary   of the situation
-- ARGV[11] runs      ids that wait for it, separated by spaces, for an item that is found
-- ARGV[12...] field, value, ...
-- Returns id of the item
-- Events  approval.pending, approval.seen, approval.expired, run.failed
-- @include common
-- @include settle_run
-- @include settle_approval
local same = redis.call('HGET', KEYS[1], 'sameAs')
if same or redis.call('EXISTS', KEYS[1]) == 1 then
  return same or ARGV[1]
end
local now = now_ms()
local found = redis.call('HGET', KEYS[4], ARGV[2])
local deadline = found and redis.call('ZSCORE', KEYS[2], found)
if deadline and now < tonumber(deadline) then
  local item = ARGV[4] .. found
  redis.call('HINCRBY', item, 'seen', 1)
  redis.call('HSET', item, 'updatedAt', now, 'situationSummary', ARGV[10])
  local waiting = redis.call('HGET', item, 'runIds') or ''
  for run in string.gmatch(ARGV[11], '%S+') do
    if not string.find(waiting, run, 1, true) then
      waiting = waiting .. ' ' .. run
    end
  end
  redis.call('HSET', item, 'runIds', waiting)
  emit(KEYS[5], 'approval.seen', 'approval', found)
  -- Proposed again by the same execution it is the same item, whatever has become of it.
  redis.call('HSET', KEYS[1], 'sameAs', found)
  redis.call('PEXPIRE', KEYS[1], 86400000)
  return found
end
if deadline then
  settle_approval({ARGV[4], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[5], tonumber(ARGV[6])},
    {ARGV[7], KEYS[6], KEYS[7], ARGV[8], ARGV[9]}, found, 'expired')
end
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'status', 'pending', 'fingerprint', ARGV[2], 'seen', 1,
  'createdAt', now, 'updatedAt', now, 'situationSummary', ARGV[10], unpack(ARGV, 12))
deadline = '+inf'
if ARGV[3] ~= '' then
  deadline = now + ARGV[3]
  redis.call('HSET', KEYS[1], 'expiresAt', deadline)
end
redis.call('ZADD', KEYS[2], deadline, ARGV[1])
redis.call('HSET', KEYS[4], ARGV[2], ARGV[1])
emit(KEYS[5], 'approval.pending', 'approval', ARGV[1])
return ARGV[1]
