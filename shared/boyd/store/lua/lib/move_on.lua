-- move_on(iteration, due, events, phase, next, resend_after, queue): end *phase* and make *next* due, on *queue* if it is
-- not the usual one. The phase changes first: what fails after that is made up for by the sweeper.
local function move_on(iteration, due, events, phase, next, resend_after, queue)
  local now = now_ms()
  local began = tonumber(redis.call('HGET', iteration, 'phaseAt')) or now
  redis.call('HSET', iteration, 'phase', next, 'sentAt', now, 'phaseAt', now, 'resends', 0, 'attempts', 0,
    'queue', queue or '', 'ms:' .. phase, now - began)
  redis.call('HDEL', iteration, 'entered')
  redis.call('ZADD', due, now + resend_after, 'phase')
  emit(events, 'phase', 'iteration', redis.call('HGET', iteration, 'iteration'), 'phase', next)
end
