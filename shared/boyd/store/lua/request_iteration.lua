-- Request an iteration for new work: it starts now, or after the one in flight or the pause.
-- trigger    for the record
-- Returns the number of the iteration that started, or 0
-- Events  iteration.started
local loop, iteration, due, events = unpack(KEYS)
local trigger, resend_after = unpack(ARGV)
-- @include begin_iteration whole_number
local state = redis.call('HMGET', loop, 'active', 'paused')
if whole_number(state[1]) or state[2] then
  redis.call('HSET', loop, 'again', 1)
  return 0
end
return begin_iteration(trigger, resend_after)
