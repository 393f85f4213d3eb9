-- Lift the hold of an action on a target.
-- actor      of the person, for the audit
-- Returns 1, or 0 when it was not held
-- Events  hold.lifted
local held_actions, audit_open, events = unpack(KEYS)
local action, target, note, actor = unpack(ARGV)
-- @include audit emit expect hold
local held = hold_key(action, target)
expect(audit_open, 'stream', held_actions, 'zset')
local have = redis.call('HMGET', held, 'kind', 'execution')
if not have[1] then
  return 0
end
audit('hold.lifted', 'action', action, 'target', target, 'execution', have[2], 'before', have[1], 'note', note,
  unpack(cjson.decode(actor)))
unhold(action, target)
emit('hold.lifted', 'action', action, 'target', target)
return 1
