-- Freeze the acting of one agent or of all, revoke an agent's right to act, or lift that. Every claim reads the mark.
-- scope      agent id, `revoked:` and an agent id, or * for all
-- freeze     1: freeze or revoke, 0: lift
-- Returns 1 when it is frozen or was until now, 0 when there was nothing to lift
local freezes, audit_open = unpack(KEYS)
local scope, freeze, reason = unpack(ARGV, 1, 3)
-- @include audit expect frozen rest time
local actor = rest(4)
local mark = redis.call('HGET', freezes, scope)
local stops = string.match(scope, '^revoked:') and 'revoked' or 'frozen'
local before = reason_of(mark) and stops or 'acting'
if freeze ~= '1' and before == 'acting' then
  return 0
end
expect(audit_open, 'stream')
-- Later than the mark that it replaces, also when the clock has stepped back: the later one holds.
local at = string.format('%.0f', math.max(now_ms(), changed_at(mark) + 1))
redis.call('HSET', freezes, scope, freeze == '1' and at .. ' ' .. reason or at)
local whose = scope == '*' and 'deployment' or 'agent'
local named = whose == 'agent' and 'agent' or nil
local lifted = stops == 'revoked' and 'restored' or 'unfrozen'
if freeze == '1' then
  audit(whose .. '.' .. stops, 'scope', named, 'before', before, 'after', stops, 'note', reason, unpack(actor))
else
  audit(whose .. '.' .. lifted, 'scope', named, 'before', before, 'after', 'acting', unpack(actor))
end
return 1
