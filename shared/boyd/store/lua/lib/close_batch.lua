-- @include forget_batch move_on
-- Uses iteration
-- close_batch(k, resend_after): complete a batch; the last one ends the observe phase. Returns how many are still open.
-- Too many are counted if it fails halfway: `watch_batches` finds that.
local function close_batch(k, resend_after)
  forget_batch(k)
  local open = redis.call('HINCRBY', iteration, 'open', -1)
  if open == 0 then
    move_on('observe', 'orient', resend_after)
  end
  return open
end
