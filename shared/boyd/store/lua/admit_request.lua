-- Find an API key and take one request from its allowance (GCRA: the allowance refills steadily).
-- id         of the key; empty: anonymous requests, which share one allowance
-- digest     of the secret that was shown: a wrong one uses up nothing
-- interval   microseconds in which one request is refilled
-- burst      how many requests the whole allowance is
-- Returns {now in ms, record or '', ms to wait or 0, requests left, ms until the allowance is whole}
local api_keys, bucket = unpack(KEYS)
local id, digest, interval, burst = unpack(ARGV)
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local record = id ~= '' and redis.call('HGET', api_keys, id) or ''
local known = id == '' or string.find(record, '"hash":"' .. digest .. '"', 1, true)
local function ms(micros)
  return math.max(0, math.ceil(micros / 1000))
end
if not known then
  return {ms(now), record, 0, 0, 0}
end
interval, burst = tonumber(interval), tonumber(burst)
local whole = math.max(now, tonumber(redis.call('GET', bucket) or now))
if whole > now + interval * burst then
  whole = now -- the clock has stepped back
end
local after = whole + interval
local wait = after - interval * burst - now
if wait > 0 then
  return {ms(now), record, ms(wait), 0, ms(whole - now)}
end
redis.call('SET', bucket, string.format('%.0f', after), 'PX', ms(after - now))
return {ms(now), record, 0, math.floor(-wait / interval), ms(after - now)}
