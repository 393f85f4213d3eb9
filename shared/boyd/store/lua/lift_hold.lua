-- Lift the hold of an action on a target, so that it may run again although it did harm, had no effect, was denied, or
-- is being verified.
-- actor      of the person, for the audit
-- Returns 'lifted', 'not held', or 'running' when an execution has to end first
-- Events  hold.lifted
local held_actions, in_flight, due, audit_open, events = unpack(KEYS)
local action, target, note, actor = unpack(ARGV)
-- @include audit emit expect flight_limits hold wake
local held = hold_key(action, target)
expect(audit_open, 'stream', held_actions, 'zset', due, 'zset')
local have = redis.call('HMGET', held, 'kind', 'execution')
local kind, execution = have[1], have[2]
local verified = {}
local field = flight_field(action, target)
if not kind then
  local flight = read_flight(field)
  for _, id in ipairs(flight.ids) do
    local where = stage(id, flight.orders[id])
    if where == 'open' then
      verified[#verified + 1], kind, execution = id, where, id
    elseif where then
      return 'running'
    end
  end
end
if not kind then
  -- Too many executions on other targets are no hold that anybody could lift.
  return target == '' and #read_flight(action).ids > 0 and 'running' or 'not held'
end
audit('hold.lifted', 'action', action, 'target', target, 'execution', execution, 'before', kind, 'note', note,
  unpack(cjson.decode(actor)))
unhold(action, target)
redis.call('DEL', key('harms', action .. ':' .. target), key('unclear', action .. ':' .. target), past_key(action, target))
if kind == 'held out' and string.find(execution, '^approval:') then
  wake(execution)
end
for _, id in ipairs(verified) do
  leave_flight(field, id)
  leave_flight(action, id)
end
emit('hold.lifted', 'action', action, 'target', target)
return 'lifted'
