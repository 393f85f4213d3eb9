-- Find an API key and take one request from its allowance (GCRA: the allowance refills steadily).
-- KEYS[1] keys       hash: key id to its record as JSON
-- KEYS[2] bucket     string: when the allowance will be whole again, in microseconds
-- ARGV[1] id         of the key; empty: nobody's, who have one allowance between them
-- ARGV[2] digest     of the secret that was shown: one that does not fit uses up nothing
-- ARGV[3] interval   microseconds in which one request is refilled
-- ARGV[4] burst      how many requests the whole allowance is
-- Returns {now in ms, record or '', ms to wait or 0, requests left, ms until the allowance is whole}
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local record = ARGV[1] ~= '' and redis.call('HGET', KEYS[1], ARGV[1]) or ''
local known = ARGV[1] == '' or string.find(record, '"hash":"' .. ARGV[2] .. '"', 1, true)
local function ms(micros)
  return math.max(0, math.ceil(micros / 1000))
end
if not known then
  return {ms(now), record, 0, 0, 0}
end
local interval, burst = tonumber(ARGV[3]), tonumber(ARGV[4])
local whole = math.max(now, tonumber(redis.call('GET', KEYS[2]) or now))
if whole > now + interval * burst then
  whole = now -- the clock has stepped back
end
local after = whole + interval
local wait = after - interval * burst - now
if wait > 0 then
  return {ms(now), record, ms(wait), 0, ms(whole - now)}
end
redis.call('SET', KEYS[2], string.format('%.0f', after), 'PX', ms(after - now))
return {ms(now), record, 0, math.floor(-wait / interval), ms(after - now)}
