-- @include begin_iteration
-- Uses runs_pending, intake
-- work_waits(): return a true value if a run, an observation from outside or a request for an iteration waits.
local function work_waits()
  local runs, observations = redis.call('ZCARD', runs_pending), redis.call('LLEN', intake)
  return runs > 0 or observations > 0 or read_loop().again
end
