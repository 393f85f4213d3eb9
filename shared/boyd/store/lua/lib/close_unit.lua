-- close_unit(iteration, due, events, k, dispatch): sign a unit off; the last one ends the observe phase.
-- Returns how many units are still open. Too many are counted if it fails halfway: `watch_units` finds that.
local function close_unit(iteration, due, events, k, dispatch)
  forget_unit(iteration, due, k)
  local open = redis.call('HINCRBY', iteration, 'open', -1)
  if open == 0 then
    move_on(iteration, due, events, 'observe', 'orient', dispatch)
  end
  return open
end
