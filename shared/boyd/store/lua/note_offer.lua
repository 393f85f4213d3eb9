-- Note that a person was asked to let an action run alone in a class of situation.
-- offered    the outcomes counted at that time
-- Returns 1, or 0 when there is no such record
local tracks = unpack(KEYS)
local action, class, offered = unpack(ARGV)
-- @include expect track
expect(tracks, 'hash')
local track = read_track(action, class)
if not track then
  return 0
end
track.offered = tonumber(offered)
write_track(action, class, track)
return 1
