-- close_unit(iteration, due, events, k, dispatch): sign a unit off; the last one ends the observe phase.
-- Returns how many units are still open.
local function close_unit(iteration, due, events, k, dispatch)
  local unit = 'unit:' .. k
  redis.call('HDEL', iteration, unit, unit .. ':attempt', unit .. ':by', unit .. ':resends', unit .. ':sentAt')
  redis.call('ZREM', due, unit)
  local open = redis.call('HINCRBY', iteration, 'open', -1)
  if open == 0 then
    move_on(iteration, due, events, 'observe', 'orient', dispatch)
  end
  return open
end
