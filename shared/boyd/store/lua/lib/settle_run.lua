-- @include audit emit expect keys place_job put_in_order time
-- Uses runs, runs_finished, due, audit_open, retention
-- expect_runs(ids): raise an error, before anything is written, if one of these runs could not be ended.
local function expect_runs(ids)
  for id in string.gmatch(ids or '', '%S+') do
    expect(runs, 'zset', runs_finished, 'zset', due, 'zset', audit_open, 'stream', key('run', id), 'hash',
      key('callback', id), 'hash')
  end
end

-- end_run(id, before, status, field, value, ...): end a run, plan its callback, if any, and forget the oldest
-- finished ones. What follows *value* goes to the audit: the actor.
local function end_run(id, before, status, field, value, ...)
  local keep_ms, keep_count = unpack(retention.runs)
  local run = key('run', id)
  local now = now_ms()
  local have = redis.call('HMGET', run, 'callbackUrl', 'result')
  if have[1] then
    -- It carries what it will say: the run may be forgotten before the last attempt.
    local callback = key('callback', id)
    redis.call('HSET', callback, 'id', id, 'url', have[1], 'status', status, 'completedAt', now)
    if have[2] then
      redis.call('HSET', callback, 'result', have[2])
    end
    redis.call('HSET', callback, field, value)
    redis.call('PEXPIRE', callback, 172800000)
    place_job('callback:' .. id, 'callback', 0)
  end
  put_in_order(runs_finished, now, id)
  audit('run.' .. status, 'run', id, 'before', before, 'after', status, ...)
  redis.call('PEXPIRE', run, keep_ms)
  -- The status last: what fails halfway is done again.
  redis.call('HSET', run, 'status', status, field, value, 'updatedAt', now, 'completedAt', now)
  emit('run.' .. status, 'run', id)
  local over = math.max(redis.call('ZCARD', runs_finished) - keep_count,
    redis.call('ZCOUNT', runs_finished, '-inf', now - keep_ms))
  if over > 0 then
    for _, old in ipairs(redis.call('ZRANGE', runs_finished, 0, math.min(over, 100) - 1)) do
      redis.call('ZREM', runs_finished, old)
      redis.call('ZREM', runs, old)
      redis.call('DEL', key('run', old))
    end
  end
end

-- settle_run(id, status, field, value, ...): end a run that is being investigated. A run that has ended in the same way
-- gets the later result, which tells more; one in any other state is left as it is.
local function settle_run(id, status, field, value, ...)
  local run = key('run', id)
  local current = redis.call('HGET', run, 'status')
  if current == 'investigating' then
    end_run(id, current, status, field, value, ...)
  elseif current == status and field == 'result' then
    redis.call('HSET', run, field, value)
    local callback = key('callback', id)
    if redis.call('EXISTS', callback) == 1 then
      redis.call('HSET', callback, field, value)
    end
  end
end
