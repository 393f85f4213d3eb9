-- What has passed its deadline; each is pushed forward, so that no two sweepers take the same one.
-- KEYS[1] due        zset: what must move on, by deadline
-- ARGV[1] push       ms until it is due again if this sweeper dies
-- Returns members
-- @include common
local now = now_ms()
local members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 100)
for _, member in ipairs(members) do
  redis.call('ZADD', KEYS[1], now + ARGV[1], member)
end
return members
