-- What has passed its deadline; each is pushed forward, so that no two sweepers take the same one.
-- When nobody has swept for longer than a lease, Redis or every worker was away: then nothing is taken, and
-- whoever still lives has a lease's time to renew before it counts as lost.
-- Where what is there does not fit together, as after a script that failed halfway, `mend` is due.
-- KEYS[1] due        zset: what must move on, by deadline
-- KEYS[2] loop       hash: counter, iteration in flight, last slot, last sweep, paused
-- KEYS[3] jobs     set: names of the open jobs
-- ARGV[1] push       ms until it is due again if this sweeper dies; the lease
-- ARGV[2] most       how many to take
-- Returns {member, the score it was pushed to, ...}
-- @include common
local now = now_ms()
local have = redis.call('HMGET', KEYS[2], 'sweptAt', 'active', 'iteration', 'slot')
local swept = tonumber(have[1]) or now
local members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])
-- No deadline is ten minutes ahead, unless the clock has stepped back.
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], now + 600000, '+inf', 'LIMIT', 0, ARGV[2])) do
  members[#members + 1] = member
end
local flight = redis.call('ZSCORE', KEYS[1], 'phase')
local jobs = redis.call('ZCARD', KEYS[1]) - (flight and 1 or 0)
local listed = redis.pcall('SCARD', KEYS[3])
local fits = (have[2] and true) == (flight and true) and type(listed) == 'number' and jobs >= listed
for i = 2, 4 do
  fits = fits and (not have[i] or tonumber(have[i]))
end
local taken = {}
if not fits then
  taken = {'mend', ''}
end
for _, member in ipairs(members) do
  -- Half a millisecond tells a sweeper's push from a worker's in the same one.
  local score = string.format('%.1f', now + ARGV[1] + 0.5)
  redis.call('ZADD', KEYS[1], score, member)
  taken[#taken + 1] = member
  taken[#taken + 1] = score
end
redis.call('HSET', KEYS[2], 'sweptAt', now)
if math.abs(now - swept) > tonumber(ARGV[1]) then
  return {}
end
return taken
