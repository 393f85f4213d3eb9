-- Resolve a pending item: exactly one of approve, deny, expire, withdraw wins, whoever races (A3).
-- KEYS[1] approval   hash: the item
-- KEYS[2] pending    zset: pending items by deadline
-- KEYS[3] history    zset: resolved items by time
-- KEYS[4] fingerprints  hash: fingerprint to pending item
-- KEYS[5] events     stream
-- KEYS[6] runs       zset: all runs by creation
-- KEYS[7] finished   zset: finished runs by end
-- KEYS[8] due        zset: what must move on, by deadline
-- ARGV[1] id
-- ARGV[2] status     approved, denied or withdrawn
-- ARGV[3] prefix     of approval hashes; touches those that are forgotten (same slot)
-- ARGV[4] keep age   of history, ms
-- ARGV[5] keep count of history
-- ARGV[6] prefix     of run hashes; touches those that waited for the item (same slot)
-- ARGV[7] keep age   of finished runs, ms
-- ARGV[8] keep count of finished runs
-- ARGV[9] dispatch   ms a message may take to reach a worker
-- ARGV[10...] field, value, ... to store
-- Returns 'resolved', or what the item is now: its status, or 'unknown'
-- Events  approval.approved, approval.denied, approval.withdrawn, approval.expired, run.failed
-- @include common
-- @include settle_run
-- @include settle_approval
local deadline = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not deadline then
  return redis.call('HGET', KEYS[1], 'status') or 'unknown'
end
local status = ARGV[2]
if now_ms() >= tonumber(deadline) then
  status = 'expired'
elseif #ARGV > 9 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 10))
end
settle_approval({ARGV[3], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[4], tonumber(ARGV[5])},
  {ARGV[6], KEYS[6], KEYS[7], ARGV[7], ARGV[8]}, ARGV[1], status)
-- An approval is also the order to execute: from here on it does not depend on whoever gave it (A4, A6).
if status == 'approved' then
  redis.call('HSET', KEYS[1], 'executionState', 'queued', 'executionAttempt', 1, 'queuedAt', now_ms(),
    'server', server_id())
  redis.call('ZADD', KEYS[8], now_ms() + ARGV[9], 'approval:' .. ARGV[1])
end
return status == ARGV[2] and 'resolved' or status
