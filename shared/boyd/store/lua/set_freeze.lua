-- Freeze the acting of one agent or of all, revoke an agent's right to act, or lift that. Claims read the mark in the copy of
-- their agent, to which announce_freeze brings it.
-- scope      agent id, `revoked:` and an agent id, or * for all
-- freeze     1: freeze or revoke, 0: lift
-- after      ms: a copy has a mark of that time, of which this server has nothing; 0: none is known
-- Returns the mark, or empty when there was nothing to lift, or it has been changed since
local freezes, audit_open = unpack(KEYS)
local scope, freeze, reason, after = unpack(ARGV, 1, 4)
-- @include audit expect frozen rest time
local actor = rest(5)
after = tonumber(after)
local mark = redis.call('HGET', freezes, scope)
local stops = string.match(scope, '^revoked:') and 'revoked' or 'frozen'
local before = reason_of(mark) and stops or 'acting'
if after > 0 and changed_at(mark) >= after or after == 0 and freeze ~= '1' and before == 'acting' then
  return ''
end
expect(audit_open, 'stream')
-- Later than the mark that it replaces, also when the clock has stepped back: the later one holds.
local at = string.format('%.0f', math.max(now_ms(), changed_at(mark) + 1, after + 1))
mark = freeze == '1' and at .. ' ' .. reason or at
-- Also when Redis is full: it refuses writes only to a script whose first write needs memory.
redis.call('HDEL', freezes, '')
redis.call('HSET', freezes, scope, mark)
local agent = string.match(scope, '^revoked:(.+)') or scope ~= '*' and scope or nil
local whose = agent and 'agent' or 'deployment'
local lifted = stops == 'revoked' and 'restored' or 'unfrozen'
if freeze == '1' then
  audit(whose .. '.' .. stops, 'agent', agent, 'before', before, 'after', stops, 'note', reason, unpack(actor))
else
  audit(whose .. '.' .. lifted, 'agent', agent, 'before', before, 'after', 'acting', unpack(actor))
end
return mark
