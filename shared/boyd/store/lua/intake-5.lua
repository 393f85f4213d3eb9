-- Hand observations to the loop from outside; where the mode asks for it, an idle agent begins at once (L2).
-- KEYS[1] intake     list: observations as JSON
-- KEYS[2] loop       hash: counter, iteration in flight, last slot, paused, frozen
-- KEYS[3] iteration  hash: the iteration in flight
-- KEYS[4] due        zset: what must move on, by deadline
-- KEYS[5] events     stream
-- ARGV[1] dispatch   ms
-- ARGV[2] start      1: begin an iteration when idle
-- ARGV[3] most       how many may wait
-- ARGV[4...] observations as JSON
-- Returns number of the iteration that began, 0, or -1 when too many wait already
-- Events  iteration.started
-- @include common
-- @include begin_iteration
if redis.call('LLEN', KEYS[1]) + #ARGV - 3 > tonumber(ARGV[3]) then
  return -1
end
for i = 4, #ARGV, 1000 do
  redis.call('RPUSH', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
local idle = not redis.call('HGET', KEYS[2], 'active') and not redis.call('HGET', KEYS[2], 'paused')
if ARGV[2] == '1' and idle then
  return begin_iteration(KEYS[2], KEYS[3], KEYS[4], KEYS[5], 'intake', ARGV[1])
end
return 0
