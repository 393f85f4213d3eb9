-- End a job, and with it the runs that waited for it; jobs that did go on.
-- name       its kind and id, as in `approval:<id>`
-- worker     as it entered, or empty: the sweeper ends what nobody can execute
-- state      succeeded, failed, unknown or unneeded
-- keep       ms that the job is kept; 0: it goes now
-- ends       arrays of a run's id, its status, and its result as JSON
-- fields     field, value, ... to store
-- Returns 1, or 0 when the entry was lost
-- Events  approval.executed, call.executed, callback.executed, procedure.executed, investigation.ended, run.completed, run.failed
local job, due, events, runs, runs_finished, audit_open, usage = unpack(KEYS)
local name, attempt, worker, state, keep, retention, ends = unpack(ARGV, 1, 7)
-- @include executes expect notices rest settle_run
local fields = rest(8)
local have = redis.call('HMGET', job, 'executionAttempt', 'executionState', 'title', 'status', 'ending', 'wakes')
local gives_up = worker == '' and have[1] == attempt and (have[2] == 'queued' or have[2] == 'running')
if not gives_up and not executes(job, attempt, worker) then
  return 0
end
expect(due, 'zset')
if keep == '0' then
  redis.call('DEL', job)
  unschedule_job(name)
  return 1
end
retention, ends = cjson.decode(retention), cjson.decode(ends)
expect(usage, 'hash')
expect_jobs(have[6])
expect_notice(name)
for _, run in ipairs(ends) do
  expect_runs(run[1])
end
local kind, id = string.match(name, '^(%w+):(.*)$')
-- A procedure may have ended before the job that started it: then its result is that of the job.
local ended, outcome
if kind == 'call' or kind == 'approval' then
  local execution = key('execution', name)
  expect(execution, 'hash')
  local known = redis.call('HMGET', execution, 'progress', 'state', 'result')
  ended, outcome = known[1] and known[2] ~= 'running' and known[3], known[2]
end
-- The job itself ends last: what fails halfway is repeated by its next worker.
local now = now_ms()
if kind ~= 'investigation' then
  if have[3] then
    emit(kind .. '.executed', kind, id, 'state', state, 'title', have[3])
  else
    emit(kind .. '.executed', kind, id, 'state', state)
  end
elseif have[4] ~= 'ended' then
  -- Its end was not announced yet: its log could not be written, or its agent has lost its model.
  local ending = have[5]
  for i = 1, #fields, 2 do
    ending = fields[i] == 'ending' and fields[i + 1] or ending
  end
  redis.call('HINCRBY', usage, 'ended ' .. ending, 1)
  emit('investigation.ended', 'investigation', id)
end
wake(have[6])
wake_notice(name)
for _, run in ipairs(ends) do
  settle_run(run[1], run[2], 'result', run[3], kind, id)
end
redis.call('HINCRBY', job, 'version', 1)
redis.call('PEXPIRE', job, keep)
redis.call('HSET', job, 'executionState', state, 'executionEndedAt', now, 'updatedAt', now, unpack(fields))
if ended then
  redis.call('HSET', job, 'result', ended, 'executionState', outcome)
end
unschedule_job(name)
return 1
