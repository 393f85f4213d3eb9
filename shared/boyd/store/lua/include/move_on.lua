-- move_on(iteration, due, events, phase, next, dispatch): end *phase* and make *next* due.
local function move_on(iteration, due, events, phase, next, dispatch)
  local now = now_ms()
  local began = redis.call('HGET', iteration, 'phaseAt')
  redis.call('HSET', iteration, 'phase', next, 'sentAt', now, 'phaseAt', now, 'resends', 0, 'attempts', 0,
    'ms:' .. phase, now - began)
  redis.call('HDEL', iteration, 'entered')
  redis.call('ZADD', due, now + dispatch, 'phase')
  emit(events, 'phase', 'iteration', redis.call('HGET', iteration, 'iteration'), 'phase', next)
end
