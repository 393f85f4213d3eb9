-- Store a pending run; where the mode asks for it, an idle agent begins at once (R1, L2).
-- KEYS[1] run        hash
-- KEYS[2] runs       zset: all runs by creation
-- KEYS[3] pending    zset: pending runs by urgency
-- KEYS[4] loop       hash: counter, iteration in flight, last slot, paused, frozen
-- KEYS[5] iteration  hash: the iteration in flight
-- KEYS[6] due        zset: what must move on, by deadline
-- KEYS[7] events     stream
-- ARGV[1] id
-- ARGV[2] urgency    0 critical .. 3 low
-- ARGV[3] dispatch   ms
-- ARGV[4] start      1: begin an iteration when idle
-- ARGV[5...] field, value, ...
-- Returns {now, number of the iteration that began or 0}
-- Events  run.pending, iteration.started
-- @include common
-- @include begin_iteration
local now = now_ms()
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'status', 'pending', 'createdAt', now, 'updatedAt', now, unpack(ARGV, 5))
redis.call('ZADD', KEYS[2], now, ARGV[1])
-- The most urgent first, then in order of arrival.
redis.call('ZADD', KEYS[3], ARGV[2] * 1e13 + redis.call('HINCRBY', KEYS[4], 'submitted', 1), ARGV[1])
emit(KEYS[7], 'run.pending', 'run', ARGV[1])
local idle = not redis.call('HGET', KEYS[4], 'active') and not redis.call('HGET', KEYS[4], 'paused')
if ARGV[4] == '1' and idle then
  return {now, begin_iteration(KEYS[4], KEYS[5], KEYS[6], KEYS[7], 'run', ARGV[3])}
end
return {now, 0}
