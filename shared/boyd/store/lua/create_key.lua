-- Keep an API key that was made, unless there is one of its id.
-- KEYS[1] keys       hash: key id to its record as JSON
-- KEYS[2] audit      stream: open audit entries of the deployment
-- ARGV[1] id
-- ARGV[2] record     JSON
-- ARGV[3] what       the key in words, for the audit
-- ARGV[4...] actor   field and value pairs
-- Returns 1 or 0
-- @include audit
if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 0 then
  return 0
end
audit(KEYS[2], 'key.created', 'apiKey', ARGV[1], 'after', ARGV[3], unpack(ARGV, 4))
return 1
