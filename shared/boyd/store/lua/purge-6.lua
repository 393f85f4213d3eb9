-- Move the pending items whose deadline has passed to history (A2, L7).
-- KEYS[1] pending    zset: pending items by deadline
-- KEYS[2] history    zset: resolved items by time
-- KEYS[3] fingerprints  hash: fingerprint to pending item
-- KEYS[4] events     stream
-- KEYS[5] runs       zset: all runs by creation
-- KEYS[6] finished   zset: finished runs by end
-- ARGV[1] prefix     of approval hashes; touches those of the expired items (same slot)
-- ARGV[2] keep age   of history, ms
-- ARGV[3] keep count of history
-- ARGV[4] prefix     of run hashes; touches those that waited for the items (same slot)
-- ARGV[5] keep age   of finished runs, ms
-- ARGV[6] keep count of finished runs
-- Returns ids of what expired
-- Events  approval.expired, run.failed
-- @include common
-- @include settle_run
-- @include settle_approval
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms(), 'LIMIT', 0, 100)
for _, id in ipairs(ids) do
  settle_approval({ARGV[1], KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[2], tonumber(ARGV[3])},
    {ARGV[4], KEYS[5], KEYS[6], ARGV[5], ARGV[6]}, id, 'expired')
end
return ids
