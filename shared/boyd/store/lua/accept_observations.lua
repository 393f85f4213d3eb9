-- Hand observations to the loop from outside; where the mode asks for it, an idle agent starts an iteration. All of them
-- are taken or none. One that repeats another which still waits takes its place, and is counted.
-- start      1: start an iteration when idle
-- most       how many may wait
-- most_bytes  how many bytes of JSON they may have together
-- remember_for  ms that the request is remembered, or 0: it does not come again
-- observations  for each: how it is known ('' if it is like no other), event or '', and itself as JSON
-- Returns number of the iteration that began, 0, or -1 when too much waits already
-- Events  iteration.started
local intake, intake_waiting, intake_taken, loop, iteration, due, events, audit_open, asked = unpack(KEYS)
local resend_after, start, most, most_bytes, remember_for, actor = unpack(ARGV, 1, 6)
-- @include audit begin_iteration expect rest
local observations = rest(7)
local TAKEN_MS, TAKEN_COUNT = 3600000, 10000
local before = remember_for ~= '0' and redis.call('GET', asked)
if before then
  return tonumber(before)
end
actor = cjson.decode(actor)
local state = redis.call('HMGET', loop, 'active', 'paused')
local count = redis.call('LLEN', intake)
local sums = {}
expect(intake_waiting, 'hash', intake_taken, 'zset', due, 'zset')
if #actor > 0 then
  expect(audit_open, 'stream')
end
if count == 0 then
  -- What only one of the two keys knows was lost with the other.
  redis.call('DEL', intake_waiting)
else
  sums = redis.call('HMGET', intake_waiting, 'bytes', 'next')
end
local bytes, serial = tonumber(sums[1] or 0), tonumber(sums[2] or 0)
local came, order, taken = 0, {}, {}
local now = now_ms()
local fresh, times = {}, {}
for i = 1, #observations, 3 do
  local id, event, text = unpack(observations, i, i + 2)
  came = came + 1
  local known = event ~= '' and (taken[event] or redis.call('ZSCORE', intake_taken, event))
  if not known then
    if event ~= '' then
      taken[event] = true
    end
    if id == '' then
      serial = serial + 1
      id = 'n' .. serial
    end
    local old = fresh[id] or redis.call('HGET', intake_waiting, 'of:' .. id)
    if old then
      bytes = bytes - #old
      times[id] = (times[id] or tonumber(redis.call('HGET', intake_waiting, 'times:' .. id) or 1)) + 1
    else
      order[#order + 1] = id
    end
    bytes = bytes + #text
    fresh[id] = text
  end
end
if #order > 0 and count + #order > tonumber(most) or bytes > tonumber(most_bytes) then
  return -1
end
for i = 1, #order, 1000 do
  redis.call('RPUSH', intake, unpack(order, i, math.min(i + 999, #order)))
end
for id, text in pairs(fresh) do
  redis.call('HSET', intake_waiting, 'of:' .. id, text)
end
for id, n in pairs(times) do
  redis.call('HSET', intake_waiting, 'times:' .. id, n)
end
if next(fresh) then
  redis.call('HSET', intake_waiting, 'bytes', bytes, 'next', serial)
end
for event in pairs(taken) do
  redis.call('ZADD', intake_taken, now, event)
end
if next(taken) then
  redis.call('ZREMRANGEBYSCORE', intake_taken, '-inf', now - TAKEN_MS)
  local over = redis.call('ZCARD', intake_taken) - TAKEN_COUNT
  for i = 0, over - 1, 1000 do
    redis.call('ZREM', intake_taken, unpack(redis.call('ZRANGE', intake_taken, 0, math.min(999, over - i - 1))))
  end
  redis.call('PEXPIRE', intake_taken, TAKEN_MS)
end
if #actor > 0 then
  audit('intake.accepted', 'count', came, unpack(actor))
end
local n = 0
if start == '1' and not state[1] and not state[2] and count + #order > 0 then
  n = begin_iteration('intake', resend_after)
end
if remember_for ~= '0' then
  redis.call('SET', asked, n, 'PX', remember_for)
end
return n
