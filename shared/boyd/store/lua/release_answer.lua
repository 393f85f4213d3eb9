-- Release the reservation of a request that failed, so that it may be tried again.
-- token      of the holder
-- Returns 1, or 0 when the request has been lost to another holder
local answer = unpack(KEYS)
local token = unpack(ARGV)
if redis.call('HGET', answer, 'token') ~= token then
  return 0
end
redis.call('DEL', answer)
return 1
