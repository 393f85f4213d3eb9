-- @include audit emit expect hold keys place_job time
-- Uses due, held_actions
-- expect_violation(id, action): raise an error unless a violation can be counted.
local function expect_violation(id, action)
  expect(key('violations', action), 'zset', hold_key(action, ''), 'hash', held_actions, 'zset', key('verify:' .. id), 'hash',
    due, 'zset')
end

-- count_violation(execution, detail): count an execution's violation of its sandbox. Too many within the window suspend the
-- action on all targets until a person lifts that, and a job notifies people.
local function count_violation(execution, detail)
  local have = redis.call('HMGET', execution, 'id', 'action', 'host', 'worker', 'sandbox')
  local id, action, limits, now = have[1], have[2], cjson.decode(have[5]), now_ms()
  local violations = key('violations', action)
  audit('action.violated', 'execution', id, 'action', action, 'host', have[3], 'worker', have[4], 'note', detail)
  redis.call('ZREMRANGEBYSCORE', violations, '-inf', now - limits.window)
  redis.call('ZADD', violations, now, id)
  redis.call('PEXPIRE', violations, limits.window)
  if redis.call('ZCARD', violations) < limits.violations then
    return
  end
  redis.call('DEL', violations)
  hold(action, '', {kind = 'suspended', because = 'violations', execution = id, evidence = detail}, 0)
  audit('action.suspended', 'execution', id, 'action', action, 'note', detail)
  emit('action.suspended', 'execution', id, 'action', action)
  -- A running verification notifies people, too. No message: the sweeper sends it at once.
  if redis.call('HEXISTS', key('verify:' .. id), 'executionState') == 0 then
    place_job('verify:' .. id, limits.queue, 0)
    redis.call('HSET', key('verify:' .. id), 'action', action)
  end
end
