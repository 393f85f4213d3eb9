-- @include time
-- take_turn(throttle, apart): let one of several processes do what any one of them has to do now and then: has none done it
-- for so many milliseconds? Returns 1 or 0.
local function take_turn(throttle, apart)
  local now = now_ms()
  local last = tonumber(redis.call('GET', throttle) or 0)
  -- One that lies ahead was taken before the clock stepped back.
  if last <= now and now - last < tonumber(apart) then
    return 0
  end
  redis.call('SET', throttle, now, 'PX', 3600000)
  return 1
end
