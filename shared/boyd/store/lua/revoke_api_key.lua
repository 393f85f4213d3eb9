-- Forget an API key, and what it has used of its allowance.
-- Returns 1 or 0
local api_keys, bucket, audit_open = unpack(KEYS)
local id = unpack(ARGV, 1, 1)
-- @include audit expect rest
local actor = rest(2)
expect(api_keys, 'hash', audit_open, 'stream')
redis.call('DEL', bucket)
if redis.call('HDEL', api_keys, id) == 0 then
  return 0
end
audit('key.revoked', 'apiKey', id, unpack(actor))
return 1
