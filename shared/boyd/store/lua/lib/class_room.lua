-- @include track
-- Limit the classes of an action to MAX_CLASSES.
local MAX_CLASSES = 50

-- is_light(track): return true if forgetting a record makes nothing easier to earn, and nothing that was granted end: it has
-- neither failures, withdrawals nor offers, and no case that counts against the action.
local function is_light(track)
  local trial = track.trial or {}
  local failures = number(track, 'failed') + number(track, 'unclear') + number(track, 'withdrawn')
  local open = number(trial, 'cases') - number(trial, 'wellAfter') + number(trial, 'waited') - number(trial, 'needed')
  return failures + open == 0 and not track.grant and not track.offered
end

-- make_room(action, class): return true if a class is kept. For a new one, the light class whose last outcome is the oldest
-- is forgotten; where there is none, the new one is not kept, and so earns nothing.
local function make_room(action, class)
  local tracks, classes, oldest, at = track_key(action), 0, nil, nil
  if redis.call('HEXISTS', tracks, class) == 1 then
    return true
  end
  for _, name in ipairs(redis.call('HKEYS', tracks)) do
    -- Of earlier builds, whose classes were narrower.
    if #name == 16 and string.find(name, '^%x+$') then
      redis.call('HDEL', tracks, name)
    end
    local track = name ~= ALL_CLASSES and (read_track(action, name) or {})
    classes = classes + (track and 1 or 0)
    if track and is_light(track) and (not at or number(track, 'updated') < at) then
      oldest, at = name, number(track, 'updated')
    end
  end
  if classes >= MAX_CLASSES and oldest then
    redis.call('HDEL', tracks, oldest)
  end
  return classes < MAX_CLASSES or oldest ~= nil
end
