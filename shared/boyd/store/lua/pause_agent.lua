-- Keep an agent from starting iterations; the one in flight goes on.
-- Returns nothing
-- Events  agent.paused
local loop, events, audit_open = unpack(KEYS)
local reason = unpack(ARGV, 1, 1)
-- @include audit emit expect rest time
local actor = rest(2)
local before = redis.call('HGET', loop, 'paused') and 'paused' or 'running'
expect(audit_open, 'stream')
redis.call('HSET', loop, 'paused', reason, 'pausedAt', now_ms())
emit('agent.paused', 'why', reason)
audit('agent.paused', 'before', before, 'after', 'paused', 'note', reason, unpack(actor))
