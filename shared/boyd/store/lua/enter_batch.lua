-- Enter a batch of the observe phase: is it open under this attempt, and has nobody entered it?
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] due        zset: what must move on, by deadline
-- ARGV[1] n
-- ARGV[2] batch       its number
-- ARGV[3] attempt    the batch's fencing token
-- ARGV[4] worker
-- ARGV[5] lease      ms
-- Returns {'ok', batch as JSON} or {'stale'}
-- @include common
local batch = 'batch:' .. ARGV[2]
local have = redis.call('HMGET', KEYS[1], 'iteration', 'phase', batch .. ':attempt', batch .. ':by', batch)
if have[1] ~= ARGV[1] or have[2] ~= 'observe' or have[3] ~= ARGV[3] or have[4] then
  return {'stale'}
end
redis.call('HSET', KEYS[1], batch .. ':by', ARGV[4])
redis.call('ZADD', KEYS[2], now_ms() + ARGV[5], batch)
return {'ok', have[5]}
