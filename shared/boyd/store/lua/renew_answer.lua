-- Say that a request is still being worked on.
-- KEYS[1] answer     hash: digest of the request, its token while it is in flight, then the answer
-- ARGV[1] token      of whoever took it
-- ARGV[2] lease      ms
-- Returns 1, or 0 when the request has been lost to somebody else
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
