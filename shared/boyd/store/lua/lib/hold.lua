-- @include keys time
-- Uses held_actions
-- hold_key(action, target): build the key of the hash that holds an action on a target.
local function hold_key(action, target)
  return key('hold', action .. ':' .. target)
end

-- hold(action, target, fields, ms): hold an action on a target for *ms*; 0: until a person lifts it. It replaces an earlier
-- hold.
local function hold(action, target, fields, ms)
  local held, now = hold_key(action, target), now_ms()
  redis.call('DEL', held)
  redis.call('HSET', held, 'action', action, 'target', target, 'since', now)
  for field, value in pairs(fields) do
    redis.call('HSET', held, field, value)
  end
  if ms > 0 then
    redis.call('HSET', held, 'until', now + ms)
    redis.call('PEXPIRE', held, ms)
  end
  redis.call('ZREMRANGEBYSCORE', held_actions, '-inf', now)
  redis.call('ZADD', held_actions, ms > 0 and now + ms or '+inf', action .. ':' .. target)
end

-- past_key(action, target): build the key of the symptoms of holds that ended while something else was wrong with the target.
local function past_key(action, target)
  return key('past', action .. ':' .. target)
end

-- with_past(past, texts): return symptoms, one a line, with the earlier ones at the key *past*; the oldest of over 50 are left
-- out.
local function with_past(past, texts)
  local _, lines = string.gsub(texts, '[^\n]+', '')
  for text in string.gmatch(texts ~= '' and redis.call('GET', past) or '', '[^\n]+') do
    if lines < 50 and not string.find('\n' .. texts .. '\n', '\n' .. text .. '\n', 1, true) then
      texts, lines = texts .. '\n' .. text, lines + 1
    end
  end
  return texts
end

-- unhold(action, target): end a hold.
local function unhold(action, target)
  local held = hold_key(action, target)
  redis.call('DEL', held)
  redis.call('ZREM', held_actions, action .. ':' .. target)
end

-- read_hold(action, target, within): return kind, because, execution and since of a hold, unless an execution with the
-- prefix *within* caused it.
local function read_hold(action, target, within)
  local held = hold_key(action, target)
  local have = redis.call('HMGET', held, 'kind', 'because', 'execution', 'since')
  local ours = have[3] and within ~= '' and string.sub(have[3], 1, #within) == within
  return unpack(ours and {} or have, 1, 4)
end

-- is_held(action, target, within): return true if a hold binds an action: the hold of its target, unless an execution with
-- the prefix *within* caused it, or one on all targets.
local function is_held(action, target, within)
  if redis.call('EXISTS', held_actions) == 0 then return false end
  local everywhere, because = read_hold(action, '', '')
  local _, _, execution = read_hold(action, target, within)
  return because == 'violations' or everywhere == 'stopped' or (execution and true)
end

-- is_overtaken(action, target, within, decided): return true if the action has done harm since it was *decided* on, on this
-- target or so that it is stopped on all. What this procedure did on its target does not count.
local function is_overtaken(action, target, within, decided)
  local everywhere, _, _, stopped = read_hold(action, '', '')
  if everywhere == 'stopped' and tonumber(stopped) > decided then
    return true
  end
  local kind, because, _, since = read_hold(action, target, within)
  local harmed = kind == 'rolled back' or (kind == 'suspended' and because ~= 'violations')
  return harmed and tonumber(since) > decided
end

-- may_hold(action, target, execution, before): return true if an execution may change the hold of its action. What another
-- one caused stays: a suspension until a person lifts it, a hold after a rollback for its time, unless it began before
-- *before*, in ms.
local function may_hold(action, target, execution, before)
  local held = hold_key(action, target)
  local have = redis.call('HMGET', held, 'execution', 'kind', 'since')
  return have[1] == execution or have[2] ~= 'suspended' and (have[2] ~= 'rolled back' or tonumber(have[3]) < before)
end
