-- Move the pending items whose deadline has passed to history (A2, L7).
-- KEYS[1] pending    zset: pending items by deadline
-- KEYS[2] history    zset: resolved items by time
-- KEYS[3] fingerprints  hash: fingerprint to pending item
-- KEYS[4] events     stream
-- KEYS[5] runs       zset: all runs by creation
-- KEYS[6] finished   zset: finished runs by end
-- KEYS[7] due        zset: what must move on, by deadline
-- KEYS[8] audit      stream: what is not sealed yet
-- ARGV[1] prefix     of the agent's keys; touches approval:, run: and callback: hashes (same slot)
-- ARGV[2] keep age   of history, ms
-- ARGV[3] keep count of history
-- ARGV[4] keep age   of finished runs, ms
-- ARGV[5] keep count of finished runs
-- Returns ids of what expired
-- Events  approval.expired, run.failed
-- @include common
-- @include audit
-- @include list_job
-- @include place_job
-- @include settle_run
-- @include wake
-- @include settle_approval
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms(), 'LIMIT', 0, 100)
for _, id in ipairs(ids) do
  settle_approval({KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[2], tonumber(ARGV[3])},
    {ARGV[1], KEYS[5], KEYS[6], KEYS[7], KEYS[8], ARGV[4], tonumber(ARGV[5])}, id, 'expired', 'who', 'clock')
end
return ids
