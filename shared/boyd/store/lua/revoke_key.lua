-- Forget an API key, and what it has used of its allowance.
-- KEYS[1] keys       hash: key id to its record as JSON
-- KEYS[2] bucket     string: when the allowance will be whole again
-- KEYS[3] audit      stream: open audit entries of the deployment
-- ARGV[1] id
-- ARGV[2...] actor   field and value pairs
-- Returns 1 or 0
-- @include audit
redis.call('DEL', KEYS[2])
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end
audit(KEYS[3], 'key.revoked', 'apiKey', ARGV[1], unpack(ARGV, 2))
return 1
