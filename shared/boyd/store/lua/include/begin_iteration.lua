-- begin_iteration(loop, iteration, due, events, trigger, dispatch): start the next iteration of an idle agent.
-- The start phase is due at once: its message has *dispatch* ms to reach a worker before it is sent again.
local function begin_iteration(loop, iteration, due, events, trigger, dispatch)
  local now = now_ms()
  local n = redis.call('HINCRBY', loop, 'iteration', 1)
  redis.call('HSET', loop, 'active', n)
  redis.call('HDEL', loop, 'again')
  redis.call('DEL', iteration)
  redis.call('HSET', iteration, 'iteration', n, 'trigger', trigger, 'epoch', 1, 'phase', 'start',
    'startedAt', now, 'sentAt', now, 'phaseAt', now, 'resends', 0, 'attempts', 0, 'retries', 0)
  redis.call('HSET', iteration, 'server', server_id())
  redis.call('ZADD', due, now + dispatch, 'phase')
  emit(events, 'iteration.started', 'iteration', n, 'trigger', trigger)
  return n
end
