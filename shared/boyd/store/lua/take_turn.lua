-- Take a turn at what any one of several processes has to do: has nobody taken one for so long?
-- KEYS[1] turn       string: when the last one was taken, ms
-- ARGV[1] apart      ms
-- Returns 1 or 0
-- @include common
local now = now_ms()
local last = tonumber(redis.call('GET', KEYS[1]) or 0)
-- One that lies ahead was taken before the clock stepped back.
if last <= now and now - last < tonumber(ARGV[1]) then
  return 0
end
redis.call('SET', KEYS[1], now, 'PX', 3600000)
return 1
