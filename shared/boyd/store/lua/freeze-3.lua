-- Freeze the acting of one agent (L34), or thaw it.
-- KEYS[1] loop       hash: counter, iteration in flight, last slot, paused, frozen
-- KEYS[2] events     stream
-- KEYS[3] audit      stream: open audit entries
-- ARGV[1] field      frozen, or frozenEverywhere when it is one of all
-- ARGV[2] freeze     1: freeze, 0: thaw
-- ARGV[3] reason
-- ARGV[4...] actor   field and value pairs
-- Returns nothing
-- Events  agent.frozen, agent.unfrozen
-- @include common
-- @include audit
local scope = ARGV[1] == 'frozen' and 'agent' or 'everywhere'
local before = redis.call('HGET', KEYS[1], ARGV[1]) and 'frozen' or 'acting'
if ARGV[2] == '1' then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  emit(KEYS[2], 'agent.frozen', 'why', ARGV[3])
  audit(KEYS[3], 'agent.frozen', 'scope', scope, 'before', before, 'after', 'frozen', 'note', ARGV[3],
    unpack(ARGV, 4))
else
  redis.call('HDEL', KEYS[1], ARGV[1])
  emit(KEYS[2], 'agent.unfrozen')
  if before == 'frozen' then
    audit(KEYS[3], 'agent.unfrozen', 'scope', scope, 'before', before, 'after', 'acting', unpack(ARGV, 4))
  end
end
