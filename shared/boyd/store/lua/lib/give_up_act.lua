-- @include time
-- Uses iteration, due
-- give_up_act(why, resend_after): nobody is to execute the action of the act phase any more. The queue `loop` takes the
-- phase, under a new epoch: it may ask for an approval, or say that nothing was executed, or what is known of an earlier
-- attempt. Returns the epoch.
local function give_up_act(why, resend_after)
  local now = now_ms()
  local epoch = redis.call('HINCRBY', iteration, 'epoch', 1)
  redis.call('HSET', iteration, 'queue', 'loop', 'unserved', why, 'sentAt', now, 'resends', 0, 'attempts', 0)
  redis.call('HDEL', iteration, 'entered')
  redis.call('ZADD', due, now + resend_after, 'phase')
  return epoch
end
