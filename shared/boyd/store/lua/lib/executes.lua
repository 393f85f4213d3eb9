-- executes(job, attempt, worker, field, ...): return state, attempt and worker of the job, and those fields, if *worker*
-- executes it under this attempt, or false.
local function executes(job, attempt, worker, ...)
  local have = redis.call('HMGET', job, 'executionState', 'executionAttempt', 'executionBy', ...)
  return have[1] == 'running' and have[2] == attempt and have[3] == worker and have
end
