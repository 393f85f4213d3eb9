-- Revoke the grants of an action. Until as many outcomes as a rule asks for were counted, it is not proposed again.
-- class      of situation; empty: all of them
-- note       for the audit
-- actor      of the person, for the audit
-- Returns the number of grants that were revoked
-- Events  autonomy.revoked
local tracks, loop, events, audit_open = unpack(KEYS)
local action, class, note, actor = unpack(ARGV)
-- @include end_grant expect
expect(audit_open, 'stream', loop, 'hash', tracks, 'hash')
actor = cjson.decode(actor)
local revoked = 0
for _, name in ipairs(class ~= '' and {class} or redis.call('HKEYS', tracks)) do
  local track = read_track(action, name)
  if track and track.grant then
    end_grant(action, name, track, 'revoked', note, unpack(actor))
    track.ended = note ~= '' and 'revoked: ' .. note or 'revoked'
    track.offered = number(track, 'effective') + number(track, 'failed')
    write_track(action, name, track)
    revoked = revoked + 1
  end
end
return revoked
