-- Settle an execution whose worker has let its claim lapse: its outcome is unknown, unless it may run again.
-- anyway     1: settle it although the claim has not lapsed; a worker that still runs it is refused
-- member     of what is due, to check again when the claim lapses; or empty
-- Returns {'open'} when it has not begun or may run again, {'running', worker, ms until it lapses} or {'over'}
local execution, audit_open, due, origin, in_flight = unpack(KEYS)
local anyway, member = unpack(ARGV)
-- @include lease_left lose_claim
local have = redis.call('HMGET', execution, 'state', 'leaseUntil', 'worker', 'idempotent', 'result', 'lease')
if not have[1] then
  return {'open'}
end
-- A procedure goes on by itself.
if have[1] ~= 'running' or have[5] then
  return {'over'}
end
local left = lease_left(execution, have[2], have[6])
if anyway ~= '1' and left > 0 then
  -- Only while no worker holds the origin: its deadline is that worker's lease.
  local owner = redis.call('HMGET', origin, 'entered', 'executionState')
  if member ~= '' and not owner[1] and owner[2] ~= 'running' then
    redis.call('ZADD', due, 'XX', now_ms() + left, member)
  end
  return {'running', have[3], left}
end
if anyway ~= '1' and have[4] == '1' then
  return {'open'}
end
lose_claim(execution, 'worker ' .. have[3] .. ' was lost while executing it')
return {'over'}
