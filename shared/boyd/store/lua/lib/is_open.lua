-- @include keys
-- is_open(job): whether a job waits or runs.
local function is_open(job)
  local state = redis.call('HGET', key(job), 'executionState')
  return state == 'queued' or state == 'running'
end
