-- Settle an execution whose worker has let its claim lapse: its outcome is unknown, unless it may run again.
-- KEYS[1] execution  hash: the ledger's entry
-- KEYS[2] audit      stream: what is not sealed yet
-- KEYS[3] due        zset: what must move on, by deadline
-- KEYS[4] origin     hash: the iteration in flight, or the job
-- ARGV[1] anyway     1: nobody will run it again, and whoever still does is not heard any more
-- ARGV[2] member     of what is due, which is looked at again when the claim lapses; or empty
-- Returns {'open'} when it has not begun or may run again, {'held', worker, ms until it lapses} or {'over'}
-- @include common
-- @include audit
-- @include lose_claim
local have = redis.call('HMGET', KEYS[1], 'state', 'leaseUntil', 'worker', 'idempotent')
if not have[1] then
  return {'open'}
end
if have[1] ~= 'running' then
  return {'over'}
end
local left = tonumber(have[2]) - now_ms()
if ARGV[1] ~= '1' and left > 0 then
  -- Only while no worker holds the origin: its deadline is that worker's lease.
  local origin = redis.call('HMGET', KEYS[4], 'entered', 'executionState')
  if ARGV[2] ~= '' and not origin[1] and origin[2] ~= 'running' then
    redis.call('ZADD', KEYS[3], 'XX', now_ms() + left, ARGV[2])
  end
  return {'held', have[3], left}
end
if ARGV[1] ~= '1' and have[4] == '1' then
  return {'open'}
end
lose_claim(KEYS[1], KEYS[2], 'worker ' .. have[3] .. ' stopped while executing it')
return {'over'}
