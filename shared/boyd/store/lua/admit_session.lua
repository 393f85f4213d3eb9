-- Find a session and its identity, renew its idle time, and take one request from the identity's allowance.
-- idle       ms without a request after which it ends
-- longest    ms after which it ends in any case, unless it has a longest time of its own, without idle time
-- renew      1: a person is there; 0: a page refreshes itself, which keeps no session open
-- interval   microseconds in which one request is refilled
-- burst      how many requests the whole allowance is
-- Returns {now in ms}: there is no such session, or its key was revoked; or {now in ms, record of the identity, confirmed at,
-- ms to wait or 0, requests left, ms until the allowance is whole}
local session, api_keys = unpack(KEYS)
local idle, longest, renew, interval, burst = unpack(ARGV)
-- @include allowance keys time
local now = now_ms()
local have = redis.call('HMGET', session, 'keyId', 'identity', 'openedAt', 'confirmedAt', 'longest')
local record = have[2] or have[1] and redis.call('HGET', api_keys, have[1])
if not record or not have[3] then
  return {now}
end
local left = have[3] + (have[5] or longest) - now
if left <= 0 then
  return {now}
end
-- What may fail comes first, so that a failure changes nothing.
local id = have[1] or string.match(session, '[^:]+$')
local wait, remaining, whole = take_allowance(key('bucket', id .. ':console'), interval, burst)
if renew == '1' then
  redis.call('HSET', session, 'seenAt', now)
  redis.call('PEXPIRE', session, have[5] and left or math.min(idle, left))
end
return {now, record, have[4], wait, remaining, whole}
