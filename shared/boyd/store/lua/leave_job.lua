-- End a job, and with it the runs that waited for it; jobs that did go on (A4, L35, T7).
-- KEYS[1] job      hash
-- KEYS[2] due        zset: what must move on, by deadline
-- KEYS[3] events     stream
-- KEYS[4] runs       zset: all runs by creation
-- KEYS[5] finished   zset: finished runs by end
-- KEYS[6] audit      stream: what is not sealed yet
-- KEYS[7] usage      hash: running totals of the agent's model
-- ARGV[1] name       `approval:…`, `call:…`, `callback:…`, `notice:…` or `investigation:…`
-- ARGV[2] attempt    its fencing token
-- ARGV[3] worker     as it entered, or empty: the sweeper ends what nobody can execute
-- ARGV[4] state      succeeded, failed or unknown
-- ARGV[5] prefix     of the agent's keys; touches run: and callback: hashes, and jobs (same slot)
-- ARGV[6] keep age   of finished runs, ms
-- ARGV[7] keep count of finished runs
-- ARGV[8] keep age   of the job, ms; 0: it goes now
-- ARGV[9] fields     how many of the following arguments are field, value, ... to store
-- ARGV[10...] fields, then run id, status, result as JSON, ...
-- Returns 1, or 0 when the entry was lost
-- Events  approval.executed, call.executed, callback.executed, investigation.ended, run.completed, run.failed
-- @include common
-- @include audit
-- @include list_job
-- @include place_job
-- @include executes
-- @include settle_run
-- @include wake
local have = redis.call('HMGET', KEYS[1], 'executionAttempt', 'executionState')
local gives_up = ARGV[3] == '' and have[1] == ARGV[2] and (have[2] == 'queued' or have[2] == 'running')
if not gives_up and not executes(KEYS[1], ARGV[2], ARGV[3]) then
  return 0
end
if ARGV[8] == '0' then
  redis.call('DEL', KEYS[1])
  unlist_job(KEYS[1], KEYS[2], ARGV[1])
  return 1
end
-- The job itself ends last: what fails halfway is done again, by whoever has it next.
local now = now_ms()
local after = 10 + ARGV[9]
local kind, id = string.match(ARGV[1], '^(%w+):(.*)$')
if kind ~= 'investigation' then
  local title = redis.call('HGET', KEYS[1], 'title')
  if title then
    emit(KEYS[3], kind .. '.executed', kind, id, 'state', ARGV[4], 'title', title)
  else
    emit(KEYS[3], kind .. '.executed', kind, id, 'state', ARGV[4])
  end
elseif redis.call('HGET', KEYS[1], 'status') ~= 'ended' then
  -- Its log could not be written, or its agent has no model any more: nobody has told of its end.
  local ending = redis.call('HGET', KEYS[1], 'ending')
  for i = 10, after - 1, 2 do
    ending = ARGV[i] == 'ending' and ARGV[i + 1] or ending
  end
  redis.call('HINCRBY', KEYS[7], 'ended ' .. ending, 1)
  emit(KEYS[3], 'investigation.ended', 'investigation', id)
end
wake(ARGV[5], KEYS[2], redis.call('HGET', KEYS[1], 'wakes'))
for i = after, #ARGV, 3 do
  settle_run({ARGV[5], KEYS[4], KEYS[5], KEYS[2], KEYS[6], ARGV[6], tonumber(ARGV[7])}, KEYS[3], ARGV[i], ARGV[i + 1],
    'result', ARGV[i + 2], kind, id)
end
redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[8])
redis.call('HSET', KEYS[1], 'executionState', ARGV[4], 'executionEndedAt', now, 'updatedAt', now, unpack(ARGV, 10, after - 1))
unlist_job(KEYS[1], KEYS[2], ARGV[1])
return 1
