-- @include hold keys time
-- Uses symptoms
-- read_sight(): return what the agent has seen last, as `update_symptoms` keeps it. What cannot be read is forgotten.
local function read_sight()
  local readable, sight = pcall(cjson.decode, redis.call('GET', symptoms) or '{}')
  return readable and sight or {}
end

-- read_symptoms(): return what is wrong now, as far as the agent has seen it: a list of {plugin, symptom, resource, type,
-- severity, description, since in ms, acknowledgement}.
local function read_symptoms()
  return read_sight().open or {}
end

-- closest_symptoms(action, target): return what an action may be meant to end, at most 50: the symptoms of its target, or else
-- those that its plugin sees, or else all.
local function closest_symptoms(action, target)
  local plugin, of_target, of_plugin, all = string.match(action, '^[^:]+'), {}, {}, {}
  for _, symptom in ipairs(read_symptoms()) do
    all[#all + 1] = symptom
    if symptom[1] == plugin then
      of_plugin[#of_plugin + 1] = symptom
    end
    if target ~= '' and symptom[3] == target then
      of_target[#of_target + 1] = symptom
    end
  end
  local closest = #of_target > 0 and of_target or #of_plugin > 0 and of_plugin or all
  return {unpack(closest, 1, math.min(#closest, 50))}
end

-- symptoms_of(action, target): return the texts of the closest symptoms, one a line.
local function symptoms_of(action, target)
  local texts = {}
  for _, symptom in ipairs(closest_symptoms(action, target)) do
    texts[#texts + 1] = symptom[2]
  end
  return table.concat(texts, '\n')
end

-- remember_past(action, target, texts): remember the symptoms of a hold that ends for as long as it would have lasted, if the
-- target has others now: the next hold is to last while any of them is there, so that two in turn do not end it each time.
local function remember_past(action, target, texts)
  local held, past = hold_key(action, target), past_key(action, target)
  local left = redis.call('PTTL', held)
  redis.call('DEL', past)
  for _, symptom in ipairs(left > 0 and closest_symptoms(action, target) or {}) do
    if target == '' or symptom[3] == target then
      redis.call('SET', past, texts, 'PX', left)
      return
    end
  end
end

-- update_symptoms(sight, latest, held): replace the symptoms, *latest*, by those in *sight.open*, but keep those of plugins in
-- *sight.blind*, which could not look. A symptom that lasts keeps the time of its beginning and its acknowledgement. Holds
-- of actions without effect, among *held*, end when all their symptoms are gone, but not while *sight.more*, a number of
-- further symptoms, is above 0. A hold that cannot be read stays.
local function update_symptoms(sight, latest, held)
  local now, before, blind = {}, {}, {}
  for _, plugin in ipairs(sight.blind) do
    blind[plugin] = true
  end
  for _, symptom in ipairs(sight.open) do
    now[symptom[2]] = true
  end
  for _, symptom in ipairs(latest) do
    before[symptom[1] .. '\n' .. symptom[2]] = symptom
    if blind[symptom[1]] and not now[symptom[2]] then
      sight.open[#sight.open + 1], now[symptom[2]] = symptom, true
    end
  end
  for _, symptom in ipairs(sight.open) do
    local same = before[symptom[1] .. '\n' .. symptom[2]]
    symptom[7], symptom[8] = same and same[7] or now_ms(), same and same[8]
  end
  redis.call('SET', symptoms, cjson.encode(sight), 'PX', 2592000000)
  if sight.more > 0 then
    return
  end
  for _, member in ipairs(held) do
    local have = redis.pcall('HMGET', key('hold', member), 'symptoms', 'action', 'target')
    local lasts = not have[1] or have[1] == ''
    for text in string.gmatch(have[1] or '', '[^\n]+') do
      lasts = lasts or now[text]
    end
    if not lasts then
      remember_past(have[2], have[3], have[1])
      unhold(have[2], have[3])
    end
  end
end
