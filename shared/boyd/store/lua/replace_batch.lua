-- Replace a batch whose worker was lost by others that cover the same tasks.
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] due        zset: what must move on, by deadline
-- ARGV[1] n
-- ARGV[2] batch       its number
-- ARGV[3] attempt    the batch's fencing token
-- ARGV[4] resend_after   ms
-- ARGV[5...] the new batches as JSON
-- Returns {'ok', number of the first new batch, their attempt} or {'stale'}
-- @include common
-- @include forget_batch
local batch = 'batch:' .. ARGV[2]
local have = redis.call('HMGET', KEYS[1], 'iteration', 'phase', batch .. ':attempt')
if have[1] ~= ARGV[1] or have[2] ~= 'observe' or have[3] ~= ARGV[3] then
  return {'stale'}
end
-- First the count, last the old batch: what fails halfway leaves too much to do, not too little.
local count = #ARGV - 4
local first = redis.call('HINCRBY', KEYS[1], 'batches', count) - count + 1
redis.call('HINCRBY', KEYS[1], 'open', count - 1)
redis.call('HINCRBY', KEYS[1], 'retries', 1)
local attempt = ARGV[3] + 1
local now = now_ms()
for i = 1, count do
  local new = 'batch:' .. (first + i - 1)
  redis.call('HSET', KEYS[1], new, ARGV[4 + i], new .. ':attempt', attempt, new .. ':sentAt', now)
  redis.call('ZADD', KEYS[2], now + ARGV[4], new)
end
forget_batch(KEYS[1], KEYS[2], ARGV[2])
return {'ok', first, attempt}
