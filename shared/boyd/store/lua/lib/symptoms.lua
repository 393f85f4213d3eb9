-- @include hold keys
-- Uses held_actions, symptoms
-- read_symptoms(): return what is wrong now, as far as the agent has seen it: a list of {plugin, text, resource}. What
-- cannot be read is forgotten.
local function read_symptoms()
  local readable, list = pcall(cjson.decode, redis.call('GET', symptoms) or '[]')
  return readable and list or {}
end

-- symptoms_of(action, target): return what an action may be meant to end, a text a line: the symptoms of its target, or else
-- those that its plugin sees, or else all.
local function symptoms_of(action, target)
  local plugin, of_target, of_plugin, all = string.match(action, '^[^:]+'), {}, {}, {}
  for _, symptom in ipairs(read_symptoms()) do
    all[#all + 1] = symptom[2]
    if symptom[1] == plugin then
      of_plugin[#of_plugin + 1] = symptom[2]
    end
    if target ~= '' and symptom[3] == target then
      of_target[#of_target + 1] = symptom[2]
    end
  end
  local closest = #of_target > 0 and of_target or #of_plugin > 0 and of_plugin or all
  return table.concat(closest, '\n', 1, math.min(#closest, 50))
end

-- update_symptoms(present, blind): replace the symptoms by those *present*, but keep those of plugins in *blind*, which
-- could not look. Holds of actions without effect end when all their symptoms are gone. A hold that cannot be read stays.
local function update_symptoms(present, blind)
  local now = {}
  for _, symptom in ipairs(present) do
    now[symptom[2]] = true
  end
  for _, symptom in ipairs(read_symptoms()) do
    if blind[symptom[1]] and not now[symptom[2]] then
      present[#present + 1], now[symptom[2]] = symptom, true
    end
  end
  redis.call('SET', symptoms, cjson.encode(present), 'PX', 2592000000)
  for _, member in ipairs(redis.call('ZRANGE', held_actions, 0, 99)) do
    local have = redis.pcall('HMGET', key('hold', member), 'symptoms', 'action', 'target')
    local lasts = not have[1] or have[1] == ''
    for text in string.gmatch(have[1] or '', '[^\n]+') do
      lasts = lasts or now[text]
    end
    if not lasts then
      unhold(have[2], have[3])
    end
  end
end
