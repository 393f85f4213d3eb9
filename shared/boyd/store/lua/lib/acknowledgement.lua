-- @include time
-- change_acknowledgement(latest, change): return the acknowledgement after a change, or nil if it changes nothing. *latest*
-- is the one before, or nil; *change* has by, name, note, and ms after which it lapses, or release.
local function change_acknowledgement(latest, change)
  local now = now_ms()
  local lasts = latest and not latest.releasedAt and not (latest['until'] and latest['until'] <= now)
  if change.release then
    if not lasts then
      return nil
    end
    latest.releasedAt, latest.releasedBy = now, change.by
    return latest
  end
  if lasts and latest.by == change.by and not change.ms and not latest['until'] then
    return nil
  end
  return {number = (latest and latest.number or 0) + 1, by = change.by, name = change.name, note = change.note, at = now,
    ['until'] = change.ms and now + change.ms or nil}
end
