-- Renew the lease of an execution, or queue it again.
-- KEYS[1] approval   hash: the item
-- KEYS[2] due        zset: what must move on, by deadline
-- ARGV[1] id
-- ARGV[2] attempt    the execution's fencing token
-- ARGV[3] worker     as it entered
-- ARGV[4] wait       ms until it is due
-- ARGV[5] queue      1: give it back, it cannot be worked on yet
-- Returns 1, or 0 when the lease is lost
-- @include common
-- @include executes
if not executes(KEYS[1], ARGV[2], ARGV[3]) then
  return 0
end
if ARGV[5] == '1' then
  redis.call('HSET', KEYS[1], 'executionState', 'queued', 'queuedAt', now_ms())
  redis.call('HDEL', KEYS[1], 'executionStartedAt')
end
redis.call('ZADD', KEYS[2], now_ms() + ARGV[4], 'approval:' .. ARGV[1])
return 1
