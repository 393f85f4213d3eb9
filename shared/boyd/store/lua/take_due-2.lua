-- What has passed its deadline; each is pushed forward, so that no two sweepers take the same one.
-- When nobody has swept for longer than a lease, Redis or every worker was away: then nothing is taken, and
-- whoever still lives has a lease's time to renew before it counts as lost.
-- KEYS[1] due        zset: what must move on, by deadline
-- KEYS[2] loop       hash: counter, iteration in flight, last slot, last sweep, paused
-- ARGV[1] push       ms until it is due again if this sweeper dies; the lease
-- ARGV[2] most       how many to take
-- Returns {member, the score it was pushed to, ...}
-- @include common
local now = now_ms()
local swept = tonumber(redis.call('HGET', KEYS[2], 'sweptAt') or now)
redis.call('HSET', KEYS[2], 'sweptAt', now)
local members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])
-- No deadline is ten minutes ahead, unless the clock has stepped back.
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], now + 600000, '+inf', 'LIMIT', 0, ARGV[2])) do
  members[#members + 1] = member
end
local taken = {}
for _, member in ipairs(members) do
  -- Half a millisecond tells a sweeper's push from a worker's in the same one.
  local score = string.format('%.1f', now + ARGV[1] + 0.5)
  redis.call('ZADD', KEYS[1], score, member)
  taken[#taken + 1] = member
  taken[#taken + 1] = score
end
if math.abs(now - swept) > tonumber(ARGV[1]) then
  return {}
end
return taken
