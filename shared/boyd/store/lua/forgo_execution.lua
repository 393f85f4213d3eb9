-- Give up executing an action that its iteration or job must not execute now, and report the outcome of an earlier attempt.
-- n          of the iteration whose act phase it is; empty for a job
-- attempt    of the job, or the epoch of the act phase
-- entered    as the worker entered it
-- Returns {'none'} when it was never started, {'stale'}, {'running', worker, ms until it lapses}, {'over'}, or
--         {'unknown', why}
local execution, origin, audit_open, due, in_flight = unpack(KEYS)
local n, attempt, entered = unpack(ARGV)
-- @include executes lease_left lose_claim owns_phase server
local fields
if n == '' then
  fields = executes(origin, attempt, entered, 'server')
else
  fields = owns_phase(origin, n, attempt, 'act', entered, 'server')
end
if not fields then
  return {'stale'}
end
local have = redis.call('HMGET', execution, 'state', 'worker', 'result', 'leaseUntil', 'lease')
if have[1] == 'running' and not have[3] then
  local left = lease_left(execution, have[4], have[5])
  if left > 0 then
    return {'running', have[2], left}
  end
  lose_claim(execution, 'worker ' .. have[2] .. ' was lost while executing it')
end
if have[1] then
  return {'over'}
end
if fields[#fields] ~= server_id() then
  return {'unknown', 'Redis restarted and may have forgotten that it was executed'}
end
return {'none'}
