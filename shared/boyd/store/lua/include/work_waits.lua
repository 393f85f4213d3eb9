-- work_waits(pending, intake): whether a run or an intake event waits for the next iteration (L3).
local function work_waits(pending, intake)
  return redis.call('ZCARD', pending) > 0 or redis.call('LLEN', intake) > 0
end
