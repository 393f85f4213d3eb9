-- Take the act phase away from a queue that nobody serves; nobody has entered the phase.
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] due        zset: what must move on, by deadline
-- ARGV[1] n
-- ARGV[2] epoch
-- ARGV[3] why        nobody can execute the action
-- ARGV[4] resend_after   ms a message may take to reach a worker
-- Returns the new epoch, or 0 when the phase has moved since
-- @include common
-- @include settle_act
local have = redis.call('HMGET', KEYS[1], 'iteration', 'epoch', 'phase', 'entered')
if have[1] ~= ARGV[1] or have[2] ~= ARGV[2] or have[3] ~= 'act' or have[4] then
  return 0
end
return settle_act(KEYS[1], KEYS[2], ARGV[3], ARGV[4])
