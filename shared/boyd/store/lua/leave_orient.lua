-- Leave the orient phase: as `leave_phase` to decide, and remember how the observers did and what is wrong. Holds of
-- actions without effect end when what they were meant to end is gone: when it comes back, the action may help.
-- health     of each observer, by its id, as JSON
-- sight      JSON: open, a list of [plugin, symptom, resource, type, severity, description], worst first; more, the number
--            of further ones; and blind, the plugins that could not look
-- wait, successor  as in `leave_phase`
-- fields     field, value, ... to store
-- Returns {'ok', now}, or {'stale'} when the entry was lost
-- Events  phase
local iteration, due, events, observers_health, held_actions, symptoms = unpack(KEYS)
local n, epoch, worker, wait, successor, health, sight = unpack(ARGV, 1, 7)
-- @include expect move_on owns_phase rest symptoms time
local fields = rest(8)
local have = owns_phase(iteration, n, epoch, 'orient', worker)
if not have then
  return {'stale'}
end
local latest, lasting = read_symptoms(), redis.call('ZRANGEBYSCORE', held_actions, now_ms(), '+inf')
-- In turn, if there are more than Redis can look at in a few milliseconds.
local MOST = 1000
local first = n % math.max(1, math.ceil(#lasting / MOST)) * MOST
local held = {unpack(lasting, first + 1, math.min(first + MOST, #lasting))}
expect(due, 'zset')
-- First, as this is the key that was not read: if it is of another kind, nothing is changed.
store(observers_health, cjson.decode(health))
redis.call('PEXPIRE', observers_health, 2592000000)
update_symptoms(cjson.decode(sight), latest, held)
move_on('orient', 'decide', wait, nil, have, fields, successor)
return {'ok', now_ms()}
