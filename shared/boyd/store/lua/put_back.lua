-- Give a phase back that was entered and cannot be worked on yet: it is due again later, and no attempt is lost.
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] due        zset: what must move on, by deadline
-- ARGV[1] n
-- ARGV[2] epoch
-- ARGV[3] phase
-- ARGV[4] worker     as it entered
-- ARGV[5] wait       ms until it is due
-- Returns 1, or 0 when the entry was lost
-- @include common
-- @include holds
if not holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then
  return 0
end
local now = now_ms()
redis.call('HDEL', KEYS[1], 'entered')
redis.call('HSET', KEYS[1], 'sentAt', now, 'resends', 0)
redis.call('ZADD', KEYS[2], now + ARGV[5], 'phase')
return 1
