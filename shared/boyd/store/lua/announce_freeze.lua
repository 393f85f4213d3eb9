-- Note in an agent's events, and for a freeze of all in its audit, that its acting was frozen or revoked, or no longer is.
-- scope      everywhere; agent or revoked: then the audit has the entry already
-- freeze     1: frozen or revoked, 0: lifted
-- Returns nothing
-- Events  agent.frozen, agent.unfrozen, agent.revoked, agent.restored
local events, audit_open = unpack(KEYS)
local scope, freeze, reason = unpack(ARGV, 1, 3)
-- @include audit emit rest
local actor = rest(4)
local kind = freeze == '1' and 'agent.frozen' or 'agent.unfrozen'
if scope == 'everywhere' then
  audit(kind, 'scope', 'everywhere', 'after', freeze == '1' and 'frozen' or 'acting', 'note', reason, unpack(actor))
end
if scope == 'revoked' then
  if freeze == '1' then
    emit('agent.revoked', 'why', reason)
  else
    emit('agent.restored')
  end
elseif freeze == '1' then
  emit('agent.frozen', 'why', reason)
else
  emit('agent.unfrozen')
end
