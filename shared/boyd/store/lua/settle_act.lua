-- Take the act phase away from a queue that nobody serves; nobody has entered the phase.
-- why        nobody can execute the action
-- Returns the new epoch, or 0 when the phase has moved since
local iteration, due = unpack(KEYS)
local n, epoch, why, resend_after = unpack(ARGV)
-- @include expect give_up_act
local have = redis.call('HMGET', iteration, 'iteration', 'epoch', 'phase', 'entered')
if have[1] ~= n or have[2] ~= epoch or have[3] ~= 'act' or have[4] then
  return 0
end
expect(due, 'zset')
return give_up_act(why, resend_after)
