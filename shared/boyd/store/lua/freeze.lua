-- Freeze the acting of one agent or of all (L34), or lift that. Every claim of an action reads the mark.
-- KEYS[1] freezes    hash: agent id, or * for all, to its mark: `<ms> <reason>`, or `<ms>` once it is lifted
-- KEYS[2] audit      stream: open audit entries, of the agent or of the deployment
-- ARGV[1] scope      agent id, or *
-- ARGV[2] freeze     1: freeze, 0: lift
-- ARGV[3] reason
-- ARGV[4...] actor   field and value pairs
-- Returns 1 when it is frozen or was until now, 0 when there was nothing to lift
-- @include common
-- @include audit
-- @include frozen
-- @include changed_at
local mark = redis.call('HGET', KEYS[1], ARGV[1])
local before = reason_of(mark) and 'frozen' or 'acting'
if ARGV[2] ~= '1' and before == 'acting' then
  return 0
end
-- Later than the mark that it replaces, also when the clock has stepped back: the later one holds.
local at = string.format('%.0f', math.max(now_ms(), changed_at(mark) + 1))
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] == '1' and at .. ' ' .. ARGV[3] or at)
local whose = ARGV[1] == '*' and 'deployment' or 'agent'
local scope = whose == 'agent' and 'agent' or nil
if ARGV[2] == '1' then
  audit(KEYS[2], whose .. '.frozen', 'scope', scope, 'before', before, 'after', 'frozen', 'note', ARGV[3],
    unpack(ARGV, 4))
else
  audit(KEYS[2], whose .. '.unfrozen', 'scope', scope, 'before', before, 'after', 'acting', unpack(ARGV, 4))
end
return 1
