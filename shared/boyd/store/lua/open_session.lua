-- Open a session of the console.
-- id         digest of its secret
-- holder     the API key or other identity, in words, for the audit
-- idle       ms without a request after which it ends
-- longest    ms after which it ends in any case
-- age        ms since the user authenticated; negative: unknown
-- name       readable name of the principal, or empty
-- principal  whose session it is
-- fields     list of field, value, ... to store
-- Returns nothing
local session, sessions, people, audit_open = unpack(KEYS)
local id, holder, idle, longest, age, name, principal, fields = unpack(ARGV, 1, 8)
-- @include audit expect rest time
local actor = rest(9)
expect(session, 'hash', sessions, 'zset', people, 'hash', audit_open, 'stream')
local now = now_ms()
redis.call('ZREMRANGEBYSCORE', sessions, '-inf', now)
redis.call('ZADD', sessions, now + longest, id)
redis.call('PEXPIRE', sessions, math.max(longest, redis.call('PTTL', sessions)))
redis.call('HSET', session, 'openedAt', now, 'seenAt', now, 'confirmedAt', tonumber(age) < 0 and 0 or now - age,
  unpack(cjson.decode(fields)))
redis.call('PEXPIRE', session, math.min(idle, longest))
if name ~= '' then
  redis.call('HSET', people, principal, name)
end
audit('session.opened', 'session', string.sub(id, 1, 12), 'after', holder, unpack(actor))
