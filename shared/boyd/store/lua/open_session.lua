-- Open a session of the console.
-- id         digest of its secret
-- holder     the API key or other identity, in words, for the audit
-- idle       ms without a request after which it ends
-- longest    ms after which it ends in any case
-- fields     list of field, value, ... to store
-- Returns nothing
local session, sessions, audit_open = unpack(KEYS)
local id, holder, idle, longest, fields = unpack(ARGV, 1, 5)
-- @include audit expect rest time
local actor = rest(6)
expect(sessions, 'zset', audit_open, 'stream')
local now = now_ms()
redis.call('ZREMRANGEBYSCORE', sessions, '-inf', now)
redis.call('ZADD', sessions, now + longest, id)
redis.call('PEXPIRE', sessions, longest)
redis.call('HSET', session, 'openedAt', now, 'seenAt', now, unpack(cjson.decode(fields)))
redis.call('PEXPIRE', session, math.min(idle, longest))
audit('session.opened', 'session', string.sub(id, 1, 12), 'after', holder, unpack(actor))
