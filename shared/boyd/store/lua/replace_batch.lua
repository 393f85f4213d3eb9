-- Replace a batch whose worker was lost by others that cover the same tasks.
-- number     the batch's
-- attempt    its fencing token
-- batches    the new ones as JSON
-- Returns {'ok', number of the first new batch, their attempt} or {'stale'}
local iteration, due = unpack(KEYS)
local n, number, attempt, resend_after = unpack(ARGV, 1, 4)
-- @include expect forget_batch rest time with_step
local batches = rest(5)
local batch = 'batch:' .. number
local have = redis.call('HMGET', iteration, 'iteration', 'phase', batch .. ':attempt', batch .. ':by', batch .. ':at', 'startedAt',
  'steps')
if have[1] ~= n or have[2] ~= 'observe' or have[3] ~= attempt then
  return {'stale'}
end
expect(due, 'zset')
-- The count comes first and the old batch last: a failure halfway then leaves too much to do, not too little.
local first = redis.call('HINCRBY', iteration, 'batches', #batches) - #batches + 1
redis.call('HINCRBY', iteration, 'open', #batches - 1)
redis.call('HINCRBY', iteration, 'retries', 1)
local now = now_ms()
redis.call('HSET', iteration, 'steps', with_step(have[7], 'observe', have[5], now, have[6], have[4],
  number .. '.' .. attempt))
for i, text in ipairs(batches) do
  local new = 'batch:' .. (first + i - 1)
  redis.call('HSET', iteration, new, text, new .. ':attempt', attempt + 1, new .. ':sentAt', now)
  redis.call('ZADD', due, now + resend_after, new)
end
forget_batch(number)
return {'ok', first, attempt + 1}
