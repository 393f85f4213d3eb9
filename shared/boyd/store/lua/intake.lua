-- Hand observations to the loop from outside; where the mode asks for it, an idle agent begins at once (L2).
-- All of them are taken or none. One that repeats another which still waits takes its place, and is counted.
-- KEYS[1] intake     list: ids of the observations that wait, in order
-- KEYS[2] waiting    hash: of:<id> an observation as JSON, times:<id> how often it came if more than once; next, bytes
-- KEYS[3] taken      zset: events that were taken lately, by when
-- KEYS[4] loop       hash: counter, iteration in flight, last slot, paused
-- KEYS[5] iteration  hash: the iteration in flight
-- KEYS[6] due        zset: what must move on, by deadline
-- KEYS[7] events     stream
-- KEYS[8] audit      stream: what is not sealed yet
-- KEYS[9] asked      string: what this request has come to before
-- ARGV[1] resend_after   ms
-- ARGV[2] start      1: begin an iteration when idle
-- ARGV[3] most       how many may wait
-- ARGV[4] bytes      how many bytes of JSON they may have together
-- ARGV[5] remember   ms that the request is remembered, or 0: it does not come again
-- ARGV[6] actor      how many of the following arguments are field, value, ... of the actor for the audit
-- ARGV[7...] actor, then for each observation: how it is known ('' if it is like no other), event or '', and itself as JSON
-- Returns number of the iteration that began, 0, or -1 when too much waits already
-- Events  iteration.started
-- @include common
-- @include audit
-- @include begin_iteration
local TAKEN_MS, TAKEN_COUNT = 3600000, 10000
local before = ARGV[5] ~= '0' and redis.call('GET', KEYS[9])
if before then
  return tonumber(before)
end
local first = 7 + ARGV[6]
local count = redis.call('LLEN', KEYS[1])
if count == 0 then
  -- What only one of the two keys knows was lost with the other.
  redis.call('DEL', KEYS[2])
end
local sums = redis.call('HMGET', KEYS[2], 'bytes', 'next')
local bytes, serial = tonumber(sums[1] or 0), tonumber(sums[2] or 0)
local came, job, events = 0, {}, {}
local now = now_ms()
local fresh, times = {}, {}
for i = first, #ARGV, 3 do
  local id, event, text = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  came = came + 1
  local known = event ~= '' and (events[event] or redis.call('ZSCORE', KEYS[3], event))
  if not known then
    if event ~= '' then
      events[event] = true
    end
    if id == '' then
      serial = serial + 1
      id = 'n' .. serial
    end
    local old = fresh[id] or redis.call('HGET', KEYS[2], 'of:' .. id)
    if old then
      bytes = bytes - #old
      times[id] = (times[id] or tonumber(redis.call('HGET', KEYS[2], 'times:' .. id) or 1)) + 1
    else
      job[#job + 1] = id
    end
    bytes = bytes + #text
    fresh[id] = text
  end
end
if #job > 0 and count + #job > tonumber(ARGV[3]) or bytes > tonumber(ARGV[4]) then
  return -1
end
for i = 1, #job, 1000 do
  redis.call('RPUSH', KEYS[1], unpack(job, i, math.min(i + 999, #job)))
end
for id, text in pairs(fresh) do
  redis.call('HSET', KEYS[2], 'of:' .. id, text)
end
for id, n in pairs(times) do
  redis.call('HSET', KEYS[2], 'times:' .. id, n)
end
if next(fresh) then
  redis.call('HSET', KEYS[2], 'bytes', bytes, 'next', serial)
end
for event in pairs(events) do
  redis.call('ZADD', KEYS[3], now, event)
end
if next(events) then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - TAKEN_MS)
  local over = redis.call('ZCARD', KEYS[3]) - TAKEN_COUNT
  for i = 0, over - 1, 1000 do
    redis.call('ZREM', KEYS[3], unpack(redis.call('ZRANGE', KEYS[3], 0, math.min(999, over - i - 1))))
  end
  redis.call('PEXPIRE', KEYS[3], TAKEN_MS)
end
if first > 7 then
  audit(KEYS[8], 'intake.accepted', 'count', came, unpack(ARGV, 7, first - 1))
end
local n = 0
local waits = count + #job > 0
local idle = not redis.call('HGET', KEYS[4], 'active') and not redis.call('HGET', KEYS[4], 'paused')
if ARGV[2] == '1' and idle and waits then
  n = begin_iteration(KEYS[4], KEYS[5], KEYS[6], KEYS[7], 'intake', ARGV[1])
end
if ARGV[5] ~= '0' then
  redis.call('SET', KEYS[9], n, 'PX', ARGV[5])
end
return n
