-- Decide what becomes of a batch that has passed its deadline: it was never entered, or its worker let the lease lapse.
-- number     the batch's
-- score      that the sweeper pushed it to: if it is another now, somebody has moved it since
-- Returns {'waiting'|'sent'|'lost', n, attempt, batch as JSON, worker, ms since it was sent} ('sent': its message is on
--         its way), {'none'}, or {'newer', format version}
local iteration, due = unpack(KEYS)
local number, resend_after, score = unpack(ARGV)
-- @include format resend time
local batch = 'batch:' .. number
if tonumber(redis.call('ZSCORE', due, batch) or 0) ~= tonumber(score) then
  return {'none'}
end
local have = redis.call('HMGET', iteration, 'iteration', batch .. ':attempt', batch, batch .. ':by', batch .. ':sentAt',
  'formatVersion')
if newer(have[6]) then
  return {'newer', newer(have[6])}
end
if not have[3] then
  redis.call('ZREM', due, batch)
  return {'none'}
end
local now = now_ms()
local state = have[4] and 'lost' or 'waiting'
if state == 'waiting' then
  state = resend(redis.call('HINCRBY', iteration, batch .. ':resends', 1)) and 'waiting' or 'sent'
  redis.call('ZADD', due, now + resend_after, batch)
end
return {state, tonumber(have[1]), tonumber(have[2]), have[3], have[4] or '', now - (tonumber(have[5]) or now)}
