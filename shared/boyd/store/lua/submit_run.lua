-- Store a pending run; where the mode asks for it, an idle agent begins at once (R1, L2).
-- KEYS[1] run        hash
-- KEYS[2] runs       zset: all runs by creation
-- KEYS[3] pending    zset: pending runs by urgency
-- KEYS[4] loop       hash: counter, iteration in flight, last slot, paused
-- KEYS[5] iteration  hash: the iteration in flight
-- KEYS[6] due        zset: what must move on, by deadline
-- KEYS[7] events     stream
-- KEYS[8] audit      stream: what is not sealed yet
-- ARGV[1] id
-- ARGV[2] urgency    0 critical .. 3 low
-- ARGV[3] resend_after   ms
-- ARGV[4] start      1: begin an iteration when idle
-- ARGV[5] most       how many runs may be pending
-- ARGV[6] fields     how many of the following arguments are field, value, ... to store
-- ARGV[7...] fields, then field, value, ... of the actor for the audit
-- Returns {1, number of the iteration that began or 0}, 0 for the 1 when the run is there already, or {-1, 0}
--         when too many are pending: it was not stored
-- Events  run.pending, iteration.started
-- @include common
-- @include audit
-- @include begin_iteration
local status = redis.call('HGET', KEYS[1], 'status')
if status and status ~= 'pending' then
  return {0, 0}
end
if not status then
  if redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[5]) then
    return {-1, 0}
  end
  local now = now_ms()
  local actor = 7 + ARGV[6]
  audit(KEYS[8], 'run.pending', 'run', ARGV[1], 'after', 'pending', unpack(ARGV, actor))
  redis.call('ZADD', KEYS[2], now, ARGV[1])
  -- The most urgent first, then in order of arrival.
  redis.call('ZADD', KEYS[3], ARGV[2] * 1e13 + redis.call('HINCRBY', KEYS[4], 'submitted', 1), ARGV[1])
  -- The run itself last: what fails halfway was not taken, and is taken when it comes again.
  redis.call('HSET', KEYS[1], 'id', ARGV[1], 'status', 'pending', 'createdAt', now, 'updatedAt', now,
    unpack(ARGV, 7, actor - 1))
  emit(KEYS[7], 'run.pending', 'run', ARGV[1])
end
local new = status and 0 or 1
local idle = not redis.call('HGET', KEYS[4], 'active') and not redis.call('HGET', KEYS[4], 'paused')
if ARGV[4] == '1' and idle then
  return {new, begin_iteration(KEYS[4], KEYS[5], KEYS[6], KEYS[7], 'run', ARGV[3])}
end
return {new, 0}
