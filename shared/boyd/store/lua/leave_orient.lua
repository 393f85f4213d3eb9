-- Leave the orient phase: as `leave_phase` to decide, and remember how the observers did. Holds end whose action had no
-- effect in other classes of situations than that of now: when it comes back, the action may help.
-- health     of each observer, by its id, as JSON
-- classes    JSON: the class of the situation, by the plugins whose actions can be held
-- fields     field, value, ... to store
-- Returns 1, or 0 when the entry was lost
-- Events  phase
local iteration, due, events, observers_health, held_actions = unpack(KEYS)
local n, epoch, worker, resend_after, health, classes = unpack(ARGV, 1, 6)
-- @include end_holds expect holds move_on rest
local fields = rest(7)
if not holds(iteration, n, epoch, 'orient', worker) then
  return 0
end
expect(due, 'zset', observers_health, 'hash')
store(iteration, fields)
store(observers_health, cjson.decode(health))
redis.call('PEXPIRE', observers_health, 2592000000)
end_holds(cjson.decode(classes))
move_on('orient', 'decide', resend_after)
return 1
