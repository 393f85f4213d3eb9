-- Find an API key and take one request from its allowance.
-- id         of the key; empty: anonymous requests, which share one allowance
-- digest     of the secret that was shown: a wrong one uses up nothing
-- interval   microseconds in which one request is refilled
-- burst      how many requests the whole allowance is
-- Returns {now in ms, record or '', ms to wait or 0, requests left, ms until the allowance is whole}
local api_keys, bucket = unpack(KEYS)
local id, digest, interval, burst = unpack(ARGV)
-- @include allowance time
local record = id ~= '' and redis.call('HGET', api_keys, id) or ''
if id ~= '' and not string.find(record or '', '"hash":"' .. digest .. '"', 1, true) then
  return {now_ms(), record, 0, 0, 0}
end
return {now_ms(), record, take_allowance(bucket, interval, burst)}
