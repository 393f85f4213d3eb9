-- Enter a job: is it queued under this attempt, and not put off until later?
-- KEYS[1] job      hash
-- KEYS[2] due        zset: what must move on, by deadline
-- ARGV[1] name       `approval:…`, `call:…`, `callback:…` or `notice:…`
-- ARGV[2] attempt    its fencing token
-- ARGV[3] worker     proves the entry when leaving
-- ARGV[4] lease      ms
-- Returns {'ok', job} or {'stale'}
-- @include common
local have = redis.call('HMGET', KEYS[1], 'executionState', 'executionAttempt', 'executionNotBefore')
local now = now_ms()
-- A message that comes twice does not begin what was put off.
if have[1] ~= 'queued' or have[2] ~= ARGV[2] or (have[3] and now < tonumber(have[3])) then
  return {'stale'}
end
redis.call('HDEL', KEYS[1], 'executionNotBefore')
redis.call('HSET', KEYS[1], 'executionState', 'running', 'executionBy', ARGV[3], 'executionStartedAt', now)
redis.call('ZADD', KEYS[2], now + ARGV[4], ARGV[1])
return {'ok', redis.call('HGETALL', KEYS[1])}
