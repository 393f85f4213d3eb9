-- @include emit time
-- Uses iteration, due
-- move_on(phase, following, resend_after, queue): end *phase* and make the *following* one due, on *queue* if it is not
-- the usual one.
local function move_on(phase, following, resend_after, queue)
  local now = now_ms()
  local have = redis.call('HMGET', iteration, 'phaseAt', 'iteration')
  redis.call('HSET', iteration, 'phase', following, 'sentAt', now, 'phaseAt', now, 'resends', 0, 'attempts', 0,
    'queue', queue or '', 'ms:' .. phase, now - (tonumber(have[1]) or now))
  redis.call('HDEL', iteration, 'entered')
  redis.call('ZADD', due, now + resend_after, 'phase')
  emit('phase', 'iteration', have[2], 'phase', following)
end
