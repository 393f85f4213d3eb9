-- Take the act phase away from a queue that nobody serves; nobody has entered the phase. An action that was started and
-- may run again waits for a worker that is just being restarted.
-- why        reason why no worker can execute the action
-- patience   ms for which it waits
-- Returns the new epoch, or 0 when the phase has moved since
local iteration, execution, due = unpack(KEYS)
local n, epoch, why, resend_after, patience = unpack(ARGV)
-- @include expect give_up_act lease_left
local have = redis.call('HMGET', iteration, 'iteration', 'epoch', 'phase', 'entered')
if have[1] ~= n or have[2] ~= epoch or have[3] ~= 'act' or have[4] then
  return 0
end
expect(due, 'zset')
local lost = redis.call('HMGET', execution, 'state', 'idempotent', 'leaseUntil', 'lease')
if lost[1] == 'running' and lost[2] == '1' and lease_left(execution, lost[3], lost[4]) + patience > 0 then
  redis.call('ZADD', due, now_ms() + resend_after, 'phase')
  return 0
end
return give_up_act(why, resend_after)
