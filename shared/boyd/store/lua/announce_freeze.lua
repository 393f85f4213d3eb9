-- Freeze or revoke the acting of an agent, or lift that, in its copy of the freeze marks, and note that in its events and its
-- audit.
-- scope      that of the mark
-- mark       as the deployment has it
-- freeze     1: frozen or revoked, 0: lifted
-- Returns 0, or the time in ms of the later mark that the copy has
-- Events  agent.frozen, agent.unfrozen, agent.revoked, agent.restored
local freezes, events, audit_open = unpack(KEYS)
local scope, mark, freeze, reason = unpack(ARGV, 1, 4)
-- @include audit emit expect frozen rest
local actor = rest(5)
expect(freezes, 'hash', audit_open, 'stream')
local have = redis.call('HGET', freezes, scope)
if changed_at(have) > changed_at(mark) then
  return changed_at(have)
end
-- Also when Redis is full: it refuses writes only to a script whose first write needs memory.
redis.call('HDEL', freezes, '')
redis.call('HSET', freezes, scope, mark)
local stops = string.match(scope, '^revoked:') and 'revoked' or 'frozen'
local lifted = stops == 'revoked' and 'restored' or 'unfrozen'
local everywhere, before = scope == '*', reason_of(have) and stops or 'acting'
audit('agent.' .. (freeze == '1' and stops or lifted), 'scope', everywhere and 'everywhere' or 'agent',
  'before', not everywhere and before, 'after', freeze == '1' and stops or 'acting', 'note', reason, unpack(actor))
if freeze ~= '1' then
  emit(stops == 'revoked' and 'agent.restored' or 'agent.unfrozen')
elseif stops == 'revoked' then
  emit('agent.revoked', 'why', reason)
else
  emit('agent.frozen', 'why', reason)
end
return 0
