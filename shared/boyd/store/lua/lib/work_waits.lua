-- Uses loop, runs_pending, intake
-- work_waits(): return a true value if a run, an observation from outside or a request for an iteration waits.
local function work_waits()
  return redis.call('ZCARD', runs_pending) > 0 or redis.call('LLEN', intake) > 0 or redis.call('HGET', loop, 'again')
end
