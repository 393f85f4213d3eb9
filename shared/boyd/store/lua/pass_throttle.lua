-- Take the turn at what one of several processes does for all of them, if it is due.
-- apart      ms between two turns
-- Returns 1 or 0
local throttle = unpack(KEYS)
local apart = unpack(ARGV)
-- @include turn
return take_turn(throttle, apart)
