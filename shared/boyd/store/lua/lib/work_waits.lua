-- work_waits(loop, pending, intake): whether a run, an intake event or something to look at waits for the next
-- iteration (L3).
local function work_waits(loop, pending, intake)
  return redis.call('ZCARD', pending) > 0 or redis.call('LLEN', intake) > 0 or redis.call('HGET', loop, 'again')
end
