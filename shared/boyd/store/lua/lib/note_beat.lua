-- @include time
-- Uses workers, worker_info
-- note_beat(name): note that a process lives. Processes silent for an hour are forgotten.
local function note_beat(name)
  local now = now_ms()
  redis.call('ZADD', workers, now, name)
  -- Heartbeats from before the clock stepped back count as given now: they must not outlive their processes.
  for _, other in ipairs(redis.call('ZRANGEBYSCORE', workers, '(' .. now, '+inf')) do
    redis.call('ZADD', workers, now, other)
  end
  for _, silent in ipairs(redis.call('ZRANGEBYSCORE', workers, '-inf', now - 3600000)) do
    redis.call('ZREM', workers, silent)
    redis.call('HDEL', worker_info, silent)
  end
end
