-- @include keys time
-- Keep track records: a hash for each action, with the record of each class of situation as JSON, and a row for what is
-- counted over all classes. All are forgotten a year (ms) after the last outcome of the action.
local TRACK_KEPT, ALL_CLASSES = 366 * 86400000, '*'

local function track_key(action)
  return key('track', action)
end

-- read_track(action, class): return the record, or nil; one that cannot be read starts again.
local function read_track(action, class)
  local tracks = track_key(action)
  local text = redis.call('HGET', tracks, class)
  local read, found = pcall(cjson.decode, text or '')
  return read and type(found) == 'table' and found or nil
end

local function write_track(action, class, track)
  local tracks = track_key(action)
  redis.call('HSET', tracks, class, cjson.encode(track))
  redis.call('PEXPIRE', tracks, TRACK_KEPT)
end

-- number(track, field): return a counter of a record.
local function number(track, field)
  return tonumber(track[field]) or 0
end

-- valid_grant(action, class, id): return that grant if it still lets the action run alone in that class.
local function valid_grant(action, class, id)
  local track = read_track(action, class)
  local grant = track and track.grant
  return grant and grant.id == id and tonumber(grant['until']) > now_ms() and grant
end
