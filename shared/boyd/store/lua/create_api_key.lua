-- Store an API key that was made, unless there is one of its id.
-- record     JSON
-- what       the key in words, for the audit
-- Returns 1 or 0
local api_keys, audit_open = unpack(KEYS)
local id, record, what = unpack(ARGV, 1, 3)
-- @include audit expect rest
local actor = rest(4)
expect(audit_open, 'stream')
if redis.call('HSETNX', api_keys, id, record) == 0 then
  return 0
end
audit('key.created', 'apiKey', id, 'after', what, unpack(actor))
return 1
