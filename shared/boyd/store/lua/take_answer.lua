-- Take a request that carries an Idempotency-Key, or find out what became of it before (H3).
-- KEYS[1] answer     hash: digest of the request, its token while it is in flight, then the answer
-- ARGV[1] request    digest of what was asked for
-- ARGV[2] token      of whoever answers it
-- ARGV[3] lease      ms that it may take
-- Returns {'taken'}, {'mismatch'}, {'in flight', ms} or {'stored', status, headers, body}
local have = redis.call('HMGET', KEYS[1], 'request', 'status', 'headers', 'body')
if not have[1] then
  redis.call('HSET', KEYS[1], 'request', ARGV[1], 'token', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {'taken'}
end
if have[1] ~= ARGV[1] then
  return {'mismatch'}
end
if not have[2] then
  return {'in flight', redis.call('PTTL', KEYS[1])}
end
return {'stored', have[2], have[3] or '', have[4] or ''}
