-- close_batch(iteration, due, events, k, resend_after): sign a batch off; the last one ends the observe phase.
-- Returns how many batches are still open. Too many are counted if it fails halfway: `watch_batches` finds that.
local function close_batch(iteration, due, events, k, resend_after)
  forget_batch(iteration, due, k)
  local open = redis.call('HINCRBY', iteration, 'open', -1)
  if open == 0 then
    move_on(iteration, due, events, 'observe', 'orient', resend_after)
  end
  return open
end
