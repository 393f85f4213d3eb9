-- Renew the claim of a running execution.
-- Returns 1, or 0 when the claim is lost
local execution = unpack(KEYS)
local token, lease = unpack(ARGV)
-- @include time
local have = redis.call('HMGET', execution, 'state', 'token')
if have[1] ~= 'running' or have[2] ~= token then
  return 0
end
redis.call('HSET', execution, 'leaseUntil', now_ms() + lease)
return 1
