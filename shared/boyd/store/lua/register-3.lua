-- Register an agent, in place of what was registered before.
-- KEYS[1] agents     hash: agent id to its entry, as JSON
-- KEYS[2] registered hash: agent id to when it was registered, ms
-- KEYS[3] freezes    hash: gets the field +, without which nobody acts
-- ARGV[1] id
-- ARGV[2] entry      JSON
-- Returns when, ms: later than every registration before it
-- @include common
local at = math.max(now_ms(), tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or 0) + 1)
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[2], ARGV[1], string.format('%.0f', at))
redis.call('HSETNX', KEYS[3], '+', '0')
return at
