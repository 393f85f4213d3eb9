-- Uses iteration, due
-- forget_batch(k): remove a batch of the observe phase; returns whether it was there.
local function forget_batch(k)
  local batch = 'batch:' .. k
  local gone = redis.call('HDEL', iteration, batch, batch .. ':attempt', batch .. ':by', batch .. ':at', batch .. ':resends',
    batch .. ':sentAt')
  redis.call('ZREM', due, batch)
  return gone > 0
end
