-- A batch has passed its deadline: was it never entered, or did its worker let the lease lapse?
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] due        zset: what must move on, by deadline
-- ARGV[1] batch       its number
-- ARGV[2] resend_after   ms
-- ARGV[3] score      that the sweeper pushed it to: if it is another now, somebody has moved it since
-- Returns {'waiting'|'sent'|'lost', n, attempt, batch as JSON, worker, ms since it was sent} ('sent': its message is on its
--         way), or {'none'}
-- @include common
-- @include resend
local batch = 'batch:' .. ARGV[1]
if tonumber(redis.call('ZSCORE', KEYS[2], batch) or 0) ~= tonumber(ARGV[3]) then
  return {'none'}
end
local have = redis.call('HMGET', KEYS[1], 'iteration', batch .. ':attempt', batch, batch .. ':by', batch .. ':sentAt')
if not have[3] then
  redis.call('ZREM', KEYS[2], batch)
  return {'none'}
end
local now = now_ms()
local state = have[4] and 'lost' or 'waiting'
if state == 'waiting' then
  state = resend(redis.call('HINCRBY', KEYS[1], batch .. ':resends', 1)) and 'waiting' or 'sent'
  redis.call('ZADD', KEYS[2], now + ARGV[2], batch)
end
return {state, tonumber(have[1]), tonumber(have[2]), have[3], have[4] or '', now - (tonumber(have[5]) or now)}
