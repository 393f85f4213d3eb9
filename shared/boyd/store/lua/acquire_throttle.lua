-- Acquire the throttle for periodic work, if due.
-- interval   ms for which it is closed then
-- Returns 1 or 0
local throttle = unpack(KEYS)
local interval = unpack(ARGV)
-- @include throttle
return acquire_throttle(throttle, interval)
