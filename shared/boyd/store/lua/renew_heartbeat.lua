-- Renew a heartbeat if Redis still has all that the process has announced and compared, and acquire the throttle for
-- periodic work, if due.
-- fleet      what `record_heartbeat` returned, which names what was compared; anything else: not renewed
-- interval   ms for which the throttle is closed then; empty: leave it alone
-- Returns 1 or 0: renewed, 1 or 0: acquired
local workers, worker_info, agents, registered, freezes, throttle = unpack(KEYS)
local name, fleet, interval = unpack(ARGV, 1, 3)
-- @include expect fleet_state note_beat throttle
local renewed = redis.call('HEXISTS', worker_info, name) == 1 and fleet == fleet_state()
expect(workers, 'zset', throttle, 'string')
if renewed then
  note_beat(name)
end
return {renewed and 1 or 0, interval ~= '' and acquire_throttle(throttle, interval) or 0}
