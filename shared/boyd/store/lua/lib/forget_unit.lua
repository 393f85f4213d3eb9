-- forget_unit(iteration, due, k): remove a unit of the observe phase; whether it was there.
local function forget_unit(iteration, due, k)
  local unit = 'unit:' .. k
  local gone = redis.call('HDEL', iteration, unit, unit .. ':attempt', unit .. ':by', unit .. ':resends', unit .. ':sentAt')
  redis.call('ZREM', due, unit)
  return gone > 0
end
