-- A worker says that it lives; those that have been silent for an hour are forgotten.
-- KEYS[1] workers    zset: name by last beat, ms
-- KEYS[2] info       hash: name to what it is, as JSON
-- ARGV[1] name
-- ARGV[2] info       JSON
-- Returns now, ms
-- @include common
local now = now_ms()
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - 3600000)) do
  redis.call('ZREM', KEYS[1], name)
  redis.call('HDEL', KEYS[2], name)
end
return now
