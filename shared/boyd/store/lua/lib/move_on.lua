-- @include emit time with_step
-- Uses iteration, due
-- move_on(phase, following, resend_after, queue): end *phase* and make the *following* one due, on *queue* if it is not
-- the usual one. An attempt at a phase that was abandoned gets the mark of one that does not count in *steps*.
local function move_on(phase, following, resend_after, queue)
  local now = now_ms()
  local have = redis.call('HMGET', iteration, 'phaseAt', 'iteration', 'entered', 'startedAt', 'steps', 'abandoned')
  local steps = have[5] or ''
  if have[3] or phase == 'observe' then
    local mark = have[6] == phase and 'x' or '-'
    steps = with_step(steps, phase, have[1], now, have[4], have[3], mark)
  end
  redis.call('HSET', iteration, 'phase', following, 'sentAt', now, 'phaseAt', now, 'resends', 0, 'attempts', 0,
    'queue', queue or '', 'ms:' .. phase, now - (tonumber(have[1]) or now), 'steps', steps)
  redis.call('HDEL', iteration, 'entered')
  redis.call('ZADD', due, now + resend_after, 'phase')
  emit('phase', 'iteration', have[2], 'phase', following)
end
