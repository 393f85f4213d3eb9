-- @include time
-- Uses workers, worker_info, worker_joined
-- note_beat(name, alive): note that a process lives; one that was silent for `alive` ms joins. Those silent for an hour are
-- forgotten.
local function note_beat(name, alive)
  local now = now_ms()
  local before = tonumber(redis.call('ZSCORE', workers, name) or 0)
  local joined = tonumber(redis.call('GET', worker_joined) or '') or 0
  redis.call('ZADD', workers, now, name)
  if before < now - alive then
    redis.call('SET', worker_joined, string.format('%.0f', math.max(now, joined + 1)), 'PX', 3600000)
  end
  -- Heartbeats from before the clock stepped back count as given now: they must not outlive their processes.
  for _, other in ipairs(redis.call('ZRANGEBYSCORE', workers, '(' .. now, '+inf')) do
    redis.call('ZADD', workers, now, other)
  end
  for _, silent in ipairs(redis.call('ZRANGEBYSCORE', workers, '-inf', now - 3600000)) do
    redis.call('ZREM', workers, silent)
    redis.call('HDEL', worker_info, silent)
  end
end
