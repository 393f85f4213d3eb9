-- @include hold symptoms
-- Uses symptoms
-- Keep cases: an action, a target, and the symptoms that it is to end. Each is drawn once, and counted once.
-- case_key(action, target): build the key of the hash of the latest case.
local function case_key(action, target)
  return key('case', action .. ':' .. target)
end

-- episode_of(action, target): return the symptoms with the times since when they are there, a line each; '' if there is none.
local function episode_of(action, target)
  local lines = {}
  for _, symptom in ipairs(closest_symptoms(action, target)) do
    lines[#lines + 1] = (symptom[7] or 0) .. ' ' .. symptom[2]
  end
  return table.concat(lines, '\n')
end

-- is_same_case(case, episode): return true if a case, as its fields, lasts: one of its symptoms does, or it never had any and
-- the action was not executed.
local function is_same_case(case, episode)
  if case.symptoms == '' or episode == '' then
    return case.symptoms == episode and not case.taken
  end
  for line in string.gmatch(episode, '[^\n]+') do
    if string.find('\n' .. case.symptoms .. '\n', '\n' .. line .. '\n', 1, true) then
      return true
    end
  end
  return false
end

-- read_case(action, target): return the latest case, or nil.
local function read_case(action, target)
  local name = case_key(action, target)
  local have = redis.call('HMGET', name, 'id', 'arm', 'round', 'until', 'symptoms', 'taken', 'ended', 'class')
  return have[1] and {id = have[1], arm = have[2], round = have[3], ['until'] = have[4] or '',
    symptoms = have[5] or '', taken = have[6], ended = have[7], class = have[8]}
end

-- take_case(action, target, execution): return how the execution counts in the trial of its action, as
-- `act:<round>:<class>` or `wait:...`; '' if it does not count. Only the first execution of a case does, and after a wait
-- only if the case had not ended without it.
local function take_case(action, target, execution)
  local case, name = read_case(action, target), case_key(action, target)
  if not case or (case.taken and case.taken ~= execution) then
    return ''
  end
  redis.call('HSET', name, 'taken', execution)
  local counts = case.arm == 'act' or case.ended == 'not well'
  return counts and case.arm .. ':' .. case.round .. ':' .. case.class or ''
end
