-- Uses intake, intake_waiting
-- read_intake(): return what waits from outside, oldest first, as much as one iteration takes: 1000 observations, or as
-- many as make 4 MB, but one at least. What is left waits for the next iteration. `taken` are the observations as a JSON
-- array; `times`, a JSON object, says how often those came that came more than once, by index; `read`, `gone` and `bytes`
-- are for `remove_intake`.
local function read_intake()
  local ids = redis.call('LRANGE', intake, 0, 999)
  local taken, times, gone, bytes, read = {}, {}, {}, 0, 0
  for _, id in ipairs(ids) do
    local have = redis.call('HMGET', intake_waiting, 'of:' .. id, 'times:' .. id)
    local text = have[1] or ''
    if read > 0 and bytes + #text > 4194304 then
      break
    end
    read = read + 1
    if have[1] then
      bytes = bytes + #text
      taken[#taken + 1] = text
      if have[2] then
        times[#times + 1] = '"' .. #taken - 1 .. '":' .. have[2]
      end
      gone[#gone + 1] = 'of:' .. id
      gone[#gone + 1] = 'times:' .. id
    end
  end
  return {taken = '[' .. table.concat(taken, ',') .. ']', times = '{' .. table.concat(times, ',') .. '}', read = read, gone = gone,
    bytes = bytes}
end

-- remove_intake(batch): remove what `read_intake` returned.
local function remove_intake(batch)
  if batch.read == 0 then
    return
  end
  redis.call('LTRIM', intake, batch.read, -1)
  if redis.call('EXISTS', intake) == 0 then
    redis.call('DEL', intake_waiting)
  elseif #batch.gone > 0 then
    redis.call('HDEL', intake_waiting, unpack(batch.gone))
    redis.call('HINCRBY', intake_waiting, 'bytes', -batch.bytes)
  end
end
