-- @include keys time
-- Uses due
-- put_off(name, wait): let nobody take the queued job before *wait* ms have passed.
local function put_off(name, wait)
  local now = now_ms()
  local at = now + wait
  redis.call('HSET', key(name), 'queuedAt', at, 'executionNotBefore', at, 'executionWait', wait)
  -- No deadline is ten minutes ahead: sweepers would conclude that the clock has stepped back.
  redis.call('ZADD', due, math.min(at, now + 540000), name)
end
