-- Take what has passed its deadline; each is pushed forward, so that no two sweepers take the same one. When nobody has
-- swept for longer than a lease, or this sweeper could not, Redis or every worker was away: then nothing is taken, and
-- live workers have the time of a lease to renew before they count as lost. `repair` is due where what is there does
-- not fit together, and `expire` when pending approvals have passed their deadline.
-- lease      ms until it is due again if this sweeper dies
-- most       how many to take
-- away       1: Redis did not answer this sweeper when it asked before
-- Returns {member, the score it was pushed to, ...}
local due, loop, iteration, jobs, approvals_pending = unpack(KEYS)
local lease, most, away = unpack(ARGV)
-- @include time whole_number
local now = now_ms()
local have = redis.call('HMGET', loop, 'sweptAt', 'active', 'iteration', 'slot')
local swept = tonumber(have[1]) or now
local members = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, most)
-- No deadline is ten minutes ahead, unless the clock has stepped back.
local latest = now + (swept - now > tonumber(lease) and tonumber(lease) or 600000)
for _, member in ipairs(redis.call('ZRANGEBYSCORE', due, '(' .. latest, '+inf', 'LIMIT', 0, most)) do
  members[#members + 1] = member
end
local flight = redis.call('ZSCORE', due, 'phase')
local pending = redis.call('ZCARD', due) - (flight and 1 or 0)
local listed = redis.pcall('SCARD', jobs)
local fits = (have[2] and true) == (flight and true) and type(listed) == 'number' and pending >= listed
for i = 2, 4 do
  fits = fits and (not have[i] or whole_number(have[i]))
end
if flight then
  local numbers = redis.pcall('HMGET', iteration, 'iteration', 'epoch')
  fits = fits and (numbers.err or (whole_number(numbers[1]) and whole_number(numbers[2])))
end
local taken = {}
if not fits then
  taken = {'repair', ''}
end
if redis.call('ZCOUNT', approvals_pending, '-inf', now) > 0 then
  taken[#taken + 1] = 'expire'
  taken[#taken + 1] = ''
end
for _, member in ipairs(members) do
  -- Half a millisecond distinguishes a sweeper's push from a worker's in the same millisecond.
  local score = string.format('%.1f', now + lease + 0.5)
  redis.call('ZADD', due, score, member)
  taken[#taken + 1] = member
  taken[#taken + 1] = score
end
redis.call('HSET', loop, 'sweptAt', now)
if away == '1' or math.abs(now - swept) > tonumber(lease) then
  return {}
end
return taken
