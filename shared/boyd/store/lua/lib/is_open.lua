-- @include keys
-- is_open(job): return true if a job waits or runs.
local function is_open(job)
  local state = redis.call('HGET', key(job), 'executionState')
  return state == 'queued' or state == 'running'
end
