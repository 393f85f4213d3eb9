-- Record the outcome of an execution; a repetition changes nothing. A worker that has lost the claim is refused, and its
-- report is kept beside the entry.
-- state      succeeded, failed or unknown
-- result     JSON
-- violation  of the sandbox, in one line, or empty
-- Returns {1}, {1, name, attempt, queue} of the job whose turn it is now, or {0} when the claim was lost
-- Events  action.suspended, autonomy.withdrawn
local execution, audit_open, due, held_actions, in_flight, loop, events = unpack(KEYS)
local token, state, result, violation = unpack(ARGV)
-- @include audit begin_verification count_outcome suspend time
local have = redis.call('HMGET', execution, 'state', 'token', 'id', 'action', 'by', 'host', 'worker', 'verify', 'target',
  'sandbox', 'verdict')
if have[1] == state and have[2] == token then
  return {1}
end
if have[1] ~= 'running' or have[2] ~= token then
  if have[1] then
    redis.call('HSET', execution, 'lateResult', result)
  end
  return {0}
end
read_flight(flight_field(have[4], have[9]))
if have[8] then
  expect_verification(have[3])
end
local counting = state == 'failed' and counting_of(execution)
local violates = violation ~= '' and have[10]
if violates then
  expect_violation(have[3], have[4])
end
-- The audit comes first: if it is refused, nothing is stored, and the outcome is reported again.
audit('action.' .. state, 'execution', have[3], 'action', have[4], 'host', have[6], 'worker', have[7],
  'before', 'running', 'after', state, 'who', have[5])
if state == 'failed' then
  count_outcome(execution, counting, state)
end
-- A call that failed may have done harm nevertheless.
local next_up = begin_verification(execution, {id = have[3], action = have[4], target = have[9], verify = have[8],
  verdict = have[11]})
if violates then
  count_violation(execution, violation)
end
redis.call('HSET', execution, 'state', state, 'result', result, 'endedAt', now_ms())
local job = next_up and redis.call('HMGET', key(next_up), 'executionState', 'executionAttempt', 'queue')
if job and job[1] == 'queued' then
  return {1, next_up, job[2], job[3] or ''}
end
return {1}
