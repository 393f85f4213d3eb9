-- Note in an agent's events, and for a freeze of all in its audit, that its acting was frozen, or no longer is.
-- KEYS[1] events     stream
-- KEYS[2] audit      stream: open audit entries
-- ARGV[1] scope      everywhere, or agent: then the audit has the entry already
-- ARGV[2] freeze     1: frozen, 0: lifted
-- ARGV[3] reason
-- ARGV[4...] actor   field and value pairs
-- Returns nothing
-- Events  agent.frozen, agent.unfrozen
-- @include common
-- @include audit
if ARGV[2] == '1' then
  emit(KEYS[1], 'agent.frozen', 'why', ARGV[3])
else
  emit(KEYS[1], 'agent.unfrozen')
end
if ARGV[1] == 'everywhere' then
  local kind = ARGV[2] == '1' and 'agent.frozen' or 'agent.unfrozen'
  local after = ARGV[2] == '1' and 'frozen' or 'acting'
  audit(KEYS[2], kind, 'scope', 'everywhere', 'after', after, 'note', ARGV[3], unpack(ARGV, 4))
end
