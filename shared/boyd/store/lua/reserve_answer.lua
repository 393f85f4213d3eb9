-- Reserve the answer to a request that carries an Idempotency-Key, or return the stored one.
-- request    digest of its content
-- token      of the holder
-- lease      ms for which it is reserved
-- Returns {'reserved'}, {'mismatch'}, {'in flight', ms} or {'stored', status, headers, body}
local answer = unpack(KEYS)
local request, token, lease = unpack(ARGV)
local have = redis.call('HMGET', answer, 'request', 'status', 'headers', 'body')
if not have[1] then
  redis.call('HSET', answer, 'request', request, 'token', token)
  redis.call('PEXPIRE', answer, lease)
  return {'reserved'}
end
if have[1] ~= request then
  return {'mismatch'}
end
if not have[2] then
  return {'in flight', redis.call('PTTL', answer)}
end
return {'stored', have[2], have[3] or '', have[4] or ''}
