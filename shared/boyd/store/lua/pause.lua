-- Keep an agent from starting iterations (L5); the one in flight goes on.
-- KEYS[1] loop       hash: counter, iteration in flight, last slot, paused
-- KEYS[2] events     stream
-- KEYS[3] audit      stream: open audit entries
-- ARGV[1] reason
-- ARGV[2...] actor   field and value pairs
-- Returns nothing
-- Events  agent.paused
-- @include common
-- @include audit
local before = redis.call('HGET', KEYS[1], 'paused') and 'paused' or 'running'
redis.call('HSET', KEYS[1], 'paused', ARGV[1])
emit(KEYS[2], 'agent.paused', 'why', ARGV[1])
audit(KEYS[3], 'agent.paused', 'before', before, 'after', 'paused', 'note', ARGV[1], unpack(ARGV, 2))
