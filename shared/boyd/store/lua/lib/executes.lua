-- executes(job, attempt, worker): return true if *worker* executes the job under this attempt.
local function executes(job, attempt, worker)
  local have = redis.call('HMGET', job, 'executionState', 'executionAttempt', 'executionBy')
  return have[1] == 'running' and have[2] == attempt and have[3] == worker
end
