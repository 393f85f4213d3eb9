-- Give up executing the action of an iteration, and report the outcome of an earlier attempt.
-- epoch      of its act phase
-- entered    as the worker entered it
-- Returns {'none'} when it was never started, {'stale'}, {'over'}, or {'unknown', why}
local execution, iteration, audit_open, due, in_flight = unpack(KEYS)
local n, epoch, entered = unpack(ARGV)
-- @include lose_claim owns_phase server
if not owns_phase(iteration, n, epoch, 'act', entered) then
  return {'stale'}
end
local have = redis.call('HMGET', execution, 'state', 'worker', 'result')
if have[1] == 'running' and not have[3] then
  lose_claim(execution, 'worker ' .. have[2] .. ' was lost while executing it')
end
if have[1] then
  return {'over'}
end
if redis.call('HGET', iteration, 'server') ~= server_id() then
  return {'unknown', 'Redis restarted and may have forgotten that it was executed'}
end
return {'none'}
