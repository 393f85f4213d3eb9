-- Enter a job if it is queued under this attempt and not put off until later.
-- name       its kind and id, as in `approval:<id>`
-- attempt    its fencing token
-- worker     proves the entry when leaving
-- Returns {'ok', job}, {'stale'}, or {'newer', format version}
local job, due = unpack(KEYS)
local name, attempt, worker, lease = unpack(ARGV)
-- @include expect format time
local have = redis.call('HMGET', job, 'executionState', 'executionAttempt', 'executionNotBefore', 'formatVersion')
local now = now_ms()
-- A message that comes twice does not begin what was put off.
if have[1] ~= 'queued' or have[2] ~= attempt or (have[3] and now < tonumber(have[3])) then
  return {'stale'}
end
if newer(have[4]) then
  return {'newer', newer(have[4])}
end
expect(due, 'zset')
redis.call('HDEL', job, 'executionNotBefore')
redis.call('HSET', job, 'executionState', 'running', 'executionBy', worker, 'executionStartedAt', now)
redis.call('ZADD', due, now + lease, name)
return {'ok', redis.call('HGETALL', job)}
