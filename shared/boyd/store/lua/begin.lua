-- Take the agent's iteration, or join the one in flight (L3). With a slot it is a tick of beat, which starts at
-- most one iteration per slot whoever sends it (L4).
-- KEYS[1] loop       hash: counter, iteration in flight, last slot, paused
-- KEYS[2] iteration  hash: the iteration in flight
-- KEYS[3] due        zset: what must move on, by deadline
-- KEYS[4] events     stream
-- KEYS[5] audit      stream: what is not sealed yet
-- KEYS[6] asked      string: the iteration that this request has begun or joined before
-- ARGV[1] trigger    who asks, for the record
-- ARGV[2] slot       of the tick, by the time it begins, in ms; or empty
-- ARGV[3] resend_after   ms a message may take to reach a worker
-- ARGV[4] length     of the slot, ms: a tick that comes after its end, or long before it begins, is skipped
-- ARGV[5] remember   ms that the request is remembered, or 0: it does not come again
-- ARGV[6...] field, value, ... of the actor for the audit, when a client asks
-- Returns {'begun'|'joined', n}, {'paused', why}, {'duplicate', last slot} or {'late', slot}
-- Events  iteration.started
-- @include common
-- @include audit
-- @include begin_iteration
-- done(outcome, n): remember which iteration the request has led to.
local function done(outcome, n)
  if ARGV[5] ~= '0' then
    redis.call('SET', KEYS[6], n, 'PX', ARGV[5])
  end
  return {outcome, tonumber(n)}
end
local before = ARGV[5] ~= '0' and redis.call('GET', KEYS[6])
if before then
  return {'joined', tonumber(before)}
end
local paused = redis.call('HGET', KEYS[1], 'paused')
if paused then
  return {'paused', paused}
end
if ARGV[2] ~= '' then
  local last = redis.call('HGET', KEYS[1], 'slot')
  -- A slot that lies ahead was claimed before the clock stepped back: it must not stop the ticks.
  local passed = tonumber(last) and tonumber(ARGV[2]) < tonumber(last) and tonumber(last) <= now_ms() + 10000
  if last == ARGV[2] or passed then
    return {'duplicate', last}
  end
  if now_ms() >= ARGV[2] + ARGV[4] or tonumber(ARGV[2]) > now_ms() + ARGV[4] + 10000 then
    return {'late', ARGV[2]}
  end
  redis.call('HSET', KEYS[1], 'slot', ARGV[2])
end
local active = redis.call('HGET', KEYS[1], 'active')
if active then
  return done('joined', active)
end
local n = begin_iteration(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[3])
if #ARGV > 5 then
  audit(KEYS[5], 'loop.triggered', 'iteration', n, unpack(ARGV, 6))
end
return done('begun', n)
