-- Renew the lease of an order, or give it back until later.
-- KEYS[1] order      hash
-- KEYS[2] due        zset: what must move on, by deadline
-- ARGV[1] name
-- ARGV[2] attempt    its fencing token
-- ARGV[3] worker     as it entered
-- ARGV[4] wait       ms until it is due
-- ARGV[5] queue      1: give it back, it cannot be worked on before then
-- ARGV[6...] field, value, ... to store
-- Returns 1, or 0 when the lease is lost
-- @include common
-- @include executes
if not executes(KEYS[1], ARGV[2], ARGV[3]) then
  return 0
end
local now = now_ms()
local at = now + ARGV[4]
if ARGV[5] == '1' then
  redis.call('HSET', KEYS[1], 'executionState', 'queued', 'queuedAt', at, 'executionNotBefore', at,
    'executionResends', 0)
  redis.call('HDEL', KEYS[1], 'executionStartedAt')
end
if #ARGV > 5 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 6))
end
-- No deadline is ten minutes ahead: sweepers take what is for a sign that the clock has stepped back.
redis.call('ZADD', KEYS[2], math.min(at, now + 540000), ARGV[1])
return 1
