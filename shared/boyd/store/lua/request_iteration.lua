-- Request an iteration for new work: it starts now, or after the one in flight or the pause.
-- trigger    for the record
-- Returns the number of the iteration that started, or 0
-- Events  iteration.started
local loop, iteration, due, events = unpack(KEYS)
local trigger, resend_after = unpack(ARGV)
-- @include begin_iteration whole_number
local state = read_loop()
if whole_number(state.active) or state.paused then
  redis.call('HSET', loop, 'again', 1)
  return 0
end
return begin_iteration(trigger, resend_after)
