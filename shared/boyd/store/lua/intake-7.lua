-- Hand observations to the loop from outside; where the mode asks for it, an idle agent begins at once (L2).
-- KEYS[1] intake     list: observations as JSON
-- KEYS[2] loop       hash: counter, iteration in flight, last slot, paused
-- KEYS[3] iteration  hash: the iteration in flight
-- KEYS[4] due        zset: what must move on, by deadline
-- KEYS[5] events     stream
-- KEYS[6] audit      stream: what is not sealed yet
-- KEYS[7] asked      string: what this request has come to before
-- ARGV[1] dispatch   ms
-- ARGV[2] start      1: begin an iteration when idle
-- ARGV[3] most       how many may wait
-- ARGV[4] remember   ms that the request is remembered, or 0: it does not come again
-- ARGV[5] actor      how many of the following arguments are field, value, ... of the actor for the audit
-- ARGV[6...] actor, then observations as JSON
-- Returns number of the iteration that began, 0, or -1 when too many wait already
-- Events  iteration.started
-- @include common
-- @include audit
-- @include begin_iteration
local before = ARGV[4] ~= '0' and redis.call('GET', KEYS[7])
if before then
  return tonumber(before)
end
local first = 6 + ARGV[5]
local count = #ARGV - first + 1
if redis.call('LLEN', KEYS[1]) + count > tonumber(ARGV[3]) then
  return -1
end
for i = first, #ARGV, 1000 do
  redis.call('RPUSH', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
if first > 6 then
  audit(KEYS[6], 'intake.accepted', 'count', count, unpack(ARGV, 6, first - 1))
end
local n = 0
local idle = not redis.call('HGET', KEYS[2], 'active') and not redis.call('HGET', KEYS[2], 'paused')
if ARGV[2] == '1' and idle then
  n = begin_iteration(KEYS[2], KEYS[3], KEYS[4], KEYS[5], 'intake', ARGV[1])
end
if ARGV[4] ~= '0' then
  redis.call('SET', KEYS[7], n, 'PX', ARGV[4])
end
return n
