-- executes(approval, attempt, worker): whether *worker* executes the approved item under this attempt.
local function executes(approval, attempt, worker)
  local have = redis.call('HMGET', approval, 'executionState', 'executionAttempt', 'executionBy')
  return have[1] == 'running' and have[2] == attempt and have[3] == worker
end
