-- @include audit emit track
-- Uses loop
-- end_grant(action, class, track, kind, why, ...): end the grant of a record, which the caller writes. Further arguments
-- are fields for the audit.
local function end_grant(action, class, track, kind, why, ...)
  audit('autonomy.' .. kind, 'action', action, 'situation', class, 'grant', track.grant.id, 'before', 'granted',
    'after', kind, 'note', why, ...)
  redis.call('HINCRBY', loop, 'autonomy:' .. kind, 1)
  emit('autonomy.' .. kind, 'action', action, 'situation', track.label or '', 'why', why)
  track.grant = nil
end
