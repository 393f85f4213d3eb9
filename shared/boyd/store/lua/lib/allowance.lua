-- take_allowance(bucket, interval, burst, count): take from an allowance that refills steadily (GCRA).
-- interval is the microseconds in which one is refilled, burst the size of the whole allowance, count how many are taken
-- (one if absent).
-- Returns ms to wait or 0, how many are left, ms until the allowance is whole.
local function ms_of(micros)
  return math.max(0, math.ceil(micros / 1000))
end

local function take_allowance(bucket, interval, burst, count)
  local t = redis.call('TIME')
  local now = t[1] * 1000000 + t[2]
  interval, burst = tonumber(interval), tonumber(burst)
  local whole = math.max(now, tonumber(redis.call('GET', bucket) or now))
  if whole > now + interval * burst then
    whole = now -- the clock has stepped back
  end
  local after = whole + interval * (count or 1)
  local wait = after - interval * burst - now
  if wait > 0 then
    return ms_of(wait), 0, ms_of(whole - now)
  end
  redis.call('SET', bucket, string.format('%.0f', after), 'PX', ms_of(after - now))
  return 0, math.floor(-wait / interval), ms_of(after - now)
end
