-- @include time
-- acquire_throttle(throttle, interval): acquire it unless a process did within the last `interval` ms. Returns 1 or 0.
local function acquire_throttle(throttle, interval)
  local now = now_ms()
  local last = tonumber(redis.call('GET', throttle) or 0)
  -- A time ahead is from before the clock stepped back.
  if last <= now and now - last < tonumber(interval) then
    return 0
  end
  redis.call('SET', throttle, now, 'PX', 3600000)
  return 1
end
