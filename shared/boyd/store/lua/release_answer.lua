-- Let go of a request that came to nothing, so that it may be tried again.
-- token      of the holder
-- Returns 1, or 0 when the request has been lost to somebody else
local answer = unpack(KEYS)
local token = unpack(ARGV)
if redis.call('HGET', answer, 'token') ~= token then
  return 0
end
redis.call('DEL', answer)
return 1
