-- Take room for what is kept for a principal, unless too much was kept for it lately.
-- bytes      that are about to be written
-- interval   microseconds in which room for one byte is refilled
-- room       bytes of the whole allowance
-- Returns 0, or ms until there is room
local bucket = unpack(KEYS)
local bytes, interval, room = unpack(ARGV)
-- @include allowance
local wait = take_allowance(bucket, interval, room, tonumber(bytes))
return wait
