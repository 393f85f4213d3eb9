-- @include keys wake
-- notice_of(execution): return the job that notifies people of the approval of an execution, or ''.
local function notice_of(execution)
  local kind, id = string.match(execution, '^(%w+):(.*)$')
  -- A rollback is named after what it undoes, which is not what a person has approved.
  id = kind == 'rollback' and redis.call('HGET', key('execution', execution), 'approvalId') or kind == 'approval' and id
  return id and 'notice:' .. id or ''
end

-- expect_notice(execution): raise an error, before anything is written, if that job could not be woken.
local function expect_notice(execution)
  expect_jobs(notice_of(execution))
end

-- wake_notice(execution): make the job that notifies people of its approval due now: there is news of it.
local function wake_notice(execution)
  wake(notice_of(execution))
end
