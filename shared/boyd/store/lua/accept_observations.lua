-- Hand observations to the loop from outside; where the mode asks for it, an idle agent starts an iteration. All of them
-- are taken or none. One that repeats another which still waits takes its place, and is counted. A change of an alert that
-- repeats one which waits no longer, or that is older than the opposite one, is dropped.
-- start      1: start an iteration when idle
-- most       how many may wait
-- most_bytes  how many bytes of JSON they may have together
-- remember_for  ms that the request is remembered, or 0: it does not come again
-- observations  for each: how it is known ('' if it is like no other), event or '', itself as JSON, and of a change of an
--            alert: 'firing' or 'resolved', a digest of the change, and when it happened in ms; else three times ''
-- Returns number of the iteration that began, 0, or -1 when too much waits already
-- Events  iteration.started
local intake, intake_waiting, intake_taken, intake_alerts, intake_latest, loop, iteration, due, events, audit_open,
  asked = unpack(KEYS)
local resend_after, start, most, most_bytes, remember_for, actor = unpack(ARGV, 1, 6)
-- @include alerts audit begin_iteration expect rest whole_number
local observations = rest(7)
local TAKEN_MS, TAKEN_COUNT = 3600000, 10000
local before = remember_for ~= '0' and redis.call('GET', asked)
if before then
  return tonumber(before)
end
actor = cjson.decode(actor)
local state = read_loop()
local count = redis.call('LLEN', intake)
local sums = {}
expect(intake_waiting, 'hash', intake_taken, 'zset', due, 'zset')
expect(intake_alerts, 'zset', intake_latest, 'hash')
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
local fresh, times, changes = {}, {}, {}

-- change_of(name): return the time and the digest of the last change of that name, those in this request included.
local function change_of(name)
  if changes[name] then
    return unpack(changes[name])
  end
  return last_change(name, now)
end

-- is_past(id, status, same, at): return true if a change of an alert is a repetition, or outdated.
local function is_past(id, status, same, at)
  local opposite = change_of(id .. (status == 'firing' and ':resolved' or ':firing'))
  if opposite and (at < opposite or at == opposite and status == 'firing') then
    return true
  end
  local waits = fresh[id] or redis.call('HEXISTS', intake_waiting, 'of:' .. id) == 1
  local _, last = change_of(id .. ':' .. status)
  return not waits and last == same
end

for i = 1, #observations, 6 do
  local id, event, text, status, same, at = unpack(observations, i, i + 5)
  at = tonumber(at)
  came = came + 1
  local known = event ~= '' and (taken[event] or redis.call('ZSCORE', intake_taken, event))
  if not known and not (at and is_past(id, status, same, at)) then
    if event ~= '' then
      taken[event] = true
    end
    if at and at >= (change_of(id .. ':' .. status) or at) then
      changes[id .. ':' .. status] = { at, same }
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
remember_changes(changes, now)
if #actor > 0 then
  audit('intake.accepted', 'count', came, unpack(actor))
end
local n = 0
if start == '1' and not whole_number(state.active) and not state.paused and count + #order > 0 then
  n = begin_iteration('intake', resend_after)
end
if remember_for ~= '0' then
  redis.call('SET', asked, n, 'PX', remember_for)
end
return n
