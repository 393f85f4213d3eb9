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

-- unhold(action, target): end a hold.
local function unhold(action, target)
  local held = hold_key(action, target)
  redis.call('DEL', held)
  redis.call('ZREM', held_actions, action .. ':' .. target)
end

-- is_held(action, target, within): return true if a hold binds an action: the hold of its target, unless an execution with
-- the prefix *within* caused it, or one on all targets.
local function is_held(action, target, within)
  local everywhere, held = hold_key(action, ''), hold_key(action, target)
  if redis.call('HGET', everywhere, 'because') == 'violations' then
    return true
  end
  local execution = redis.call('HGET', held, 'execution')
  if within and within ~= '' and execution and string.sub(execution, 1, #within) == within then
    return false
  end
  return execution and true
end

-- may_hold(action, target, execution): return true if an execution may change the hold of its action. A suspension that
-- another execution caused stays until a person lifts it.
local function may_hold(action, target, execution)
  local held = hold_key(action, target)
  local have = redis.call('HMGET', held, 'execution', 'kind')
  return have[2] ~= 'suspended' or have[1] == execution
end
