-- @include time
-- Uses iteration, due
-- give_up_act(why, resend_after): give up executing the action of the act phase. The queue `loop` takes the phase under a
-- new epoch, and either asks for an approval or reports that nothing was executed, or the outcome of an earlier attempt.
-- Returns the epoch.
local function give_up_act(why, resend_after)
  local now = now_ms()
  local epoch = redis.call('HINCRBY', iteration, 'epoch', 1)
  redis.call('HSET', iteration, 'queue', 'loop', 'unserved', why, 'sentAt', now, 'resends', 0, 'attempts', 0)
  redis.call('HDEL', iteration, 'entered')
  redis.call('ZADD', due, now + resend_after, 'phase')
  return epoch
end
