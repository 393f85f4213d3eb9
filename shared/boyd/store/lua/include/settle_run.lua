-- settle_run(prefix, index, finished, events, id, status, field, value, keep_ms, keep_count): end a run that is being
-- investigated, and forget the oldest finished ones. A run that has ended in the same way gets the later result, which
-- tells more; one in any other state is left as it is.
local function settle_run(prefix, index, finished, events, id, status, field, value, keep_ms, keep_count)
  local key = prefix .. id
  local current = redis.call('HGET', key, 'status')
  if current == status and field == 'result' then
    redis.call('HSET', key, field, value)
  end
  if current ~= 'investigating' then
    return 0
  end
  local now = now_ms()
  redis.call('HSET', key, 'status', status, field, value, 'updatedAt', now, 'completedAt', now)
  redis.call('PEXPIRE', key, keep_ms)
  redis.call('ZADD', finished, now, id)
  emit(events, 'run.' .. status, 'run', id)
  local over = math.max(redis.call('ZCARD', finished) - keep_count, redis.call('ZCOUNT', finished, '-inf', now - keep_ms))
  if over > 0 then
    for _, old in ipairs(redis.call('ZRANGE', finished, 0, math.min(over, 100) - 1)) do
      redis.call('ZREM', finished, old)
      redis.call('ZREM', index, old)
      redis.call('DEL', prefix .. old)
    end
  end
  return 1
end
