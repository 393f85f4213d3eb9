-- Let go of a request that came to nothing, so that it may be tried again.
-- KEYS[1] answer     hash: digest of the request, its token while it is in flight, then the answer
-- ARGV[1] token      of whoever took it
-- Returns 1, or 0 when the request has been lost to somebody else
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
return 1
