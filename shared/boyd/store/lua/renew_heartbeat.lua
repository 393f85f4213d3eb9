-- Renew a heartbeat if Redis still has all that the process has announced and compared, and let it take the turn at what one
-- of several processes does for all of them.
-- fleet      what `record_heartbeat` returned, which names what was compared; anything else: not renewed
-- apart      ms between two turns; empty: it asks for none
-- Returns 1 or 0: renewed, 1 or 0: it has the turn
local workers, worker_info, agents, registered, freezes, throttle = unpack(KEYS)
local name, fleet, apart = unpack(ARGV, 1, 3)
-- @include expect fleet_state note_beat turn
local renewed = redis.call('HEXISTS', worker_info, name) == 1 and fleet == fleet_state()
expect(workers, 'zset', throttle, 'string')
if renewed then
  note_beat(name)
end
return {renewed and 1 or 0, apart ~= '' and take_turn(throttle, apart) or 0}
