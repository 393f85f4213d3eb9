-- Renew the lease of a request that is still being worked on.
-- token      of the holder
-- Returns 1, or 0 when the request has been lost to another holder
local answer = unpack(KEYS)
local token, lease = unpack(ARGV)
if redis.call('HGET', answer, 'token') ~= token then
  return 0
end
redis.call('PEXPIRE', answer, lease)
return 1
