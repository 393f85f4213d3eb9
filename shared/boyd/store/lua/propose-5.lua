-- Queue an action for approval, or find the pending item of the same action and params (A9).
-- KEYS[1] approval   hash: the new item
-- KEYS[2] pending    zset: pending items by deadline
-- KEYS[3] history    zset: resolved items by time
-- KEYS[4] fingerprints  hash: fingerprint to pending item
-- KEYS[5] events     stream
-- ARGV[1] id
-- ARGV[2] fingerprint
-- ARGV[3] ttl        ms until it expires, or empty: never
-- ARGV[4] prefix     of approval hashes; touches that of the item found (same slot)
-- ARGV[5] keep age   of history, ms
-- ARGV[6] keep count of history
-- ARGV[7] summary    of the situation
-- ARGV[8...] field, value, ...
-- Returns {'created'|'seen', id}
-- Events  approval.pending, approval.seen, approval.expired
-- @include common
-- @include settle_approval
local now = now_ms()
local found = redis.call('HGET', KEYS[4], ARGV[2])
if found then
  local deadline = redis.call('ZSCORE', KEYS[2], found)
  if deadline and now < tonumber(deadline) then
    redis.call('HINCRBY', ARGV[4] .. found, 'seen', 1)
    redis.call('HSET', ARGV[4] .. found, 'updatedAt', now, 'situationSummary', ARGV[7])
    emit(KEYS[5], 'approval.seen', 'approval', found)
    return {'seen', found}
  end
  if deadline then
    settle_approval(ARGV[4], KEYS[2], KEYS[3], KEYS[4], KEYS[5], found, 'expired', ARGV[5], tonumber(ARGV[6]))
  end
end
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'status', 'pending', 'fingerprint', ARGV[2], 'seen', 1,
  'createdAt', now, 'updatedAt', now, 'situationSummary', ARGV[7], unpack(ARGV, 8))
local deadline = '+inf'
if ARGV[3] ~= '' then
  deadline = now + ARGV[3]
  redis.call('HSET', KEYS[1], 'expiresAt', deadline)
end
redis.call('ZADD', KEYS[2], deadline, ARGV[1])
redis.call('HSET', KEYS[4], ARGV[2], ARGV[1])
emit(KEYS[5], 'approval.pending', 'approval', ARGV[1])
return {'created', ARGV[1]}
