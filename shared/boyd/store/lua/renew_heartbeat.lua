-- Renew a heartbeat if Redis still has all that the process has announced and compared, and acquire the throttle for
-- periodic work, if due.
-- fleet      what `record_heartbeat` returned, which names what was compared; anything else: not renewed
-- alive      ms of silence after which a process counts as dead
-- interval   ms for which the throttle is closed then; empty: leave it alone
-- Returns 1 or 0: renewed, 1 or 0: acquired, if renewed a digest of the live processes: any that joins or dies changes it,
-- and the time in ms
local workers, worker_info, worker_joined, agents, registered, freezes, throttle = unpack(KEYS)
local name, fleet, alive, interval = unpack(ARGV, 1, 4)
-- @include expect fleet_state note_beat throttle time
local renewed = redis.call('HEXISTS', worker_info, name) == 1 and fleet == fleet_state()
expect(workers, 'zset', worker_joined, 'string', throttle, 'string')
local live = ''
if renewed then
  note_beat(name, alive)
  local latest = redis.call('ZREVRANGE', workers, 0, 0, 'WITHSCORES')[2]
  live = redis.call('ZCOUNT', workers, latest - alive, '+inf') .. ' ' .. (redis.call('GET', worker_joined) or '')
end
return {renewed and 1 or 0, interval ~= '' and acquire_throttle(throttle, interval) or 0, live, now_ms()}
