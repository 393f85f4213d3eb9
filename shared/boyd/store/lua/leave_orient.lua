-- Leave the orient phase: as `leave_phase` to decide, and remember how the observers did.
-- health     of each observer, by its id, as JSON
-- fields     field, value, ... to store
-- Returns 1, or 0 when the entry was lost
-- Events  phase
local iteration, due, events, observers_health = unpack(KEYS)
local n, epoch, worker, resend_after, health = unpack(ARGV, 1, 5)
-- @include expect holds move_on rest
local fields = rest(6)
if not holds(iteration, n, epoch, 'orient', worker) then
  return 0
end
expect(due, 'zset', observers_health, 'hash')
store(iteration, fields)
store(observers_health, cjson.decode(health))
redis.call('PEXPIRE', observers_health, 2592000000)
move_on('orient', 'decide', resend_after)
return 1
