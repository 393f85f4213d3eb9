-- @include keys time
-- Uses held_actions
-- hold_key(action, target): build the key of the hash that holds an action on a target.
local function hold_key(action, target)
  return key('hold', action .. ':' .. target)
end

-- hold(action, target, fields, ms, situation): hold an action on a target for *ms*; 0: until a person lifts it. It replaces
-- an earlier hold, but keeps the classes of situations in which the action had no effect, and adds *situation*, which may
-- be nil.
local function hold(action, target, fields, ms, situation)
  local held, now = hold_key(action, target), now_ms()
  local situations = redis.call('HGET', held, 'situations') or ''
  if situation and not string.find(situations, situation, 1, true) then
    situations = situations .. (situations ~= '' and ' ' or '') .. situation
  end
  redis.call('DEL', held)
  redis.call('HSET', held, 'action', action, 'target', target, 'since', now, 'situations', situations)
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

-- unhold(action, target): end a hold.
local function unhold(action, target)
  local held = hold_key(action, target)
  redis.call('DEL', held)
  redis.call('ZREM', held_actions, action .. ':' .. target)
end

-- is_held(action, target, situation, within): return true if a hold binds an action in that class of situation: the hold of
-- its target, unless an execution with the prefix *within* caused it, or one on all targets.
local function is_held(action, target, situation, within)
  local everywhere, held = hold_key(action, ''), hold_key(action, target)
  if redis.call('HGET', everywhere, 'because') == 'violations' then
    return true
  end
  local have = redis.call('HMGET', held, 'kind', 'situations', 'execution')
  if within and within ~= '' and have[3] and string.sub(have[3], 1, #within) == within then
    return false
  end
  if have[1] ~= 'no effect' then
    return have[1] and true
  end
  return have[2] == '' or string.find(have[2], situation, 1, true) ~= nil
end

-- may_hold(action, target, execution): return true if an execution may change the hold of its action. A suspension that
-- another execution caused stays until a person lifts it.
local function may_hold(action, target, execution)
  local held = hold_key(action, target)
  local have = redis.call('HMGET', held, 'execution', 'kind')
  return have[2] ~= 'suspended' or have[1] == execution
end
