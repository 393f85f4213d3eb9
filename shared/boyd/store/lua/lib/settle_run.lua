-- end_run(runs, events, id, before, status, field, value, ...): end a run, tell whoever asked to be called back, and
-- forget the oldest finished ones. What follows *value* goes to the audit: who did it.
-- runs: {prefix of the agent's keys, index, finished, due, audit, keep_ms, keep_count}
local function end_run(runs, events, id, before, status, field, value, ...)
  local prefix, index, finished, due, trail, keep_ms, keep_count = unpack(runs)
  local key = prefix .. 'run:' .. id
  local now = now_ms()
  local have = redis.call('HMGET', key, 'callbackUrl', 'result')
  if have[1] then
    -- It carries what it will say: the run may be forgotten before the last attempt.
    local callback = prefix .. 'callback:' .. id
    redis.call('HSET', callback, 'id', id, 'url', have[1], 'status', status, 'completedAt', now)
    if have[2] then
      redis.call('HSET', callback, 'result', have[2])
    end
    redis.call('HSET', callback, field, value)
    redis.call('PEXPIRE', callback, 172800000)
    place_job(callback, due, 'callback:' .. id, 'callback', 0)
  end
  redis.call('ZADD', finished, now, id)
  audit(trail, 'run.' .. status, 'run', id, 'before', before, 'after', status, ...)
  redis.call('PEXPIRE', key, keep_ms)
  -- The status last: what fails halfway is done again.
  redis.call('HSET', key, 'status', status, field, value, 'updatedAt', now, 'completedAt', now)
  emit(events, 'run.' .. status, 'run', id)
  local over = math.max(redis.call('ZCARD', finished) - keep_count, redis.call('ZCOUNT', finished, '-inf', now - keep_ms))
  if over > 0 then
    for _, old in ipairs(redis.call('ZRANGE', finished, 0, math.min(over, 100) - 1)) do
      redis.call('ZREM', finished, old)
      redis.call('ZREM', index, old)
      redis.call('DEL', prefix .. 'run:' .. old)
    end
  end
end

-- settle_run(runs, events, id, status, field, value, ...): end a run that is being investigated. A run that has ended
-- in the same way gets the later result, which tells more; one in any other state is left as it is.
local function settle_run(runs, events, id, status, field, value, ...)
  local key = runs[1] .. 'run:' .. id
  local current = redis.call('HGET', key, 'status')
  if current == 'investigating' then
    end_run(runs, events, id, current, status, field, value, ...)
  elseif current == status and field == 'result' then
    redis.call('HSET', key, field, value)
    local callback = runs[1] .. 'callback:' .. id
    if redis.call('EXISTS', callback) == 1 then
      redis.call('HSET', callback, field, value)
    end
  end
end
