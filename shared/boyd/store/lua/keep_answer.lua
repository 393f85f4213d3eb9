-- Keep the answer to a request, for whoever asks the same again.
-- KEYS[1] answer     hash: digest of the request, its token while it is in flight, then the answer
-- ARGV[1] token      of whoever took it
-- ARGV[2] status     of HTTP
-- ARGV[3] headers    JSON
-- ARGV[4] body
-- ARGV[5] ttl        ms
-- Returns 1, or 0 when the request has been lost to somebody else
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then
  return 0
end
redis.call('HDEL', KEYS[1], 'token')
redis.call('HSET', KEYS[1], 'status', ARGV[2], 'headers', ARGV[3], 'body', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1
