-- Store the answer to a request, for its repetitions.
-- token      of the holder
-- status     of HTTP
-- headers    JSON
-- ttl        ms
-- Returns 1, or 0 when the request has been lost to another holder
local answer = unpack(KEYS)
local token, status, headers, body, ttl = unpack(ARGV)
if redis.call('HGET', answer, 'token') ~= token then
  return 0
end
redis.call('HDEL', answer, 'token')
redis.call('HSET', answer, 'status', status, 'headers', headers, 'body', body)
redis.call('PEXPIRE', answer, ttl)
return 1
