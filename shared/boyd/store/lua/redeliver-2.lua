-- Send a callback once more, from the beginning of its plan; one that is on its way goes on as it is.
-- KEYS[1] callback   hash
-- KEYS[2] due        zset: what must move on, by deadline
-- ARGV[1] name       `callback:…`
-- Returns 1, or 0 when there is none
-- @include common
local have = redis.call('HMGET', KEYS[1], 'executionState', 'executionAttempt')
if not have[1] then
  return 0
end
if have[1] ~= 'running' then
  redis.call('HSET', KEYS[1], 'executionState', 'queued', 'executionAttempt', have[2] + 1, 'executionResends', 0,
    'queuedAt', now_ms(), 'tries', 0)
  redis.call('ZADD', KEYS[2], now_ms(), ARGV[1])
end
return 1
