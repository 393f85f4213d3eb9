-- Put a phase back that was entered and cannot be worked on yet: it is due again later, and the attempt does not count.
-- worker     as it entered
-- wait       ms until it is due
-- fields     field, value, ... to store
-- Returns 1, or 0 when the entry was lost
local iteration, due = unpack(KEYS)
local n, epoch, phase, worker, wait = unpack(ARGV, 1, 5)
-- @include expect owns_phase rest time
local fields = rest(6)
if not owns_phase(iteration, n, epoch, phase, worker) then
  return 0
end
expect(due, 'zset')
local now = now_ms()
redis.call('HDEL', iteration, 'entered')
redis.call('HSET', iteration, 'sentAt', now, 'resends', 0, unpack(fields))
redis.call('ZADD', due, now + wait, 'phase')
return 1
