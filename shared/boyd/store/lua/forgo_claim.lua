-- Settle that the action of an iteration is not executed any more, and say what is known of an earlier attempt.
-- KEYS[1] execution  hash: the ledger's entry
-- KEYS[2] iteration  hash: the iteration in flight
-- KEYS[3] audit      stream: what is not sealed yet
-- ARGV[1] n
-- ARGV[2] epoch      of its act phase
-- ARGV[3] entered    as the worker entered it
-- Returns {'none'} when it was never started, {'stale'}, {'over'}, or {'unknown', why}
-- @include common
-- @include audit
-- @include holds
-- @include lose_claim
if not holds(KEYS[2], ARGV[1], ARGV[2], 'act', ARGV[3]) then
  return {'stale'}
end
local have = redis.call('HMGET', KEYS[1], 'state', 'worker')
if have[1] == 'running' then
  lose_claim(KEYS[1], KEYS[3], 'worker ' .. have[2] .. ' stopped while executing it')
end
if have[1] then
  return {'over'}
end
if redis.call('HGET', KEYS[2], 'server') ~= server_id() then
  return {'unknown', 'Redis restarted and may have forgotten that it was executed'}
end
return {'none'}
