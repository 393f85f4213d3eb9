-- now_ms(): return the time of the Redis server, in milliseconds since the epoch: for a whole script the same.
local read_at
local function now_ms()
  if not read_at then
    local t = redis.call('TIME')
    read_at = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  return read_at
end
