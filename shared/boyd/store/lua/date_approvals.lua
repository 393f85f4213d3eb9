-- Give pending items that have no deadline the one that they would have now: their agent lets approvals expire since. The
-- sweeper then moves those that have passed it to history.
-- ttl        ms from their creation to the deadline
-- keep       ms that history keeps an item
-- Returns how many there were; more may be left after a hundred
local approvals_pending = unpack(KEYS)
local ttl, keep = unpack(ARGV)
-- @include keys put_in_order time
local ids = redis.call('ZRANGEBYSCORE', approvals_pending, '(4e12', '+inf', 'LIMIT', 0, 100)
for _, id in ipairs(ids) do
  local approval = key('approval', id)
  local deadline = (redis.call('HGET', approval, 'createdAt') or 0) + ttl
  redis.call('HSET', approval, 'expiresAt', deadline)
  redis.call('PEXPIRE', approval, math.max(0, deadline - now_ms()) + keep)
  redis.call('ZREM', approvals_pending, id)
  put_in_order(approvals_pending, deadline, id)
end
return #ids
