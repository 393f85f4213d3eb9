-- Close a session.
-- Returns 1 or 0
local session, sessions, audit_open = unpack(KEYS)
local id = unpack(ARGV, 1, 1)
-- @include audit expect rest
local actor = rest(2)
expect(sessions, 'zset', audit_open, 'stream')
redis.call('ZREM', sessions, id)
if redis.call('DEL', session) == 0 then
  return 0
end
audit('session.closed', 'session', string.sub(id, 1, 12), unpack(actor))
return 1
