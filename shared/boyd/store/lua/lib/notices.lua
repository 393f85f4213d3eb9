-- @include keys wake
-- notice_of(execution): return the job that notifies people of the approval of an execution, or ''.
local function notice_of(execution)
  local kind, id = string.match(execution, '^(%w+):(.*)$')
  if kind == 'rollback' then
    -- A person may have approved it, whatever it undoes.
    id = redis.call('HGET', key('execution', execution), 'approvalId')
  elseif kind ~= 'approval' then
    id = nil
  end
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
