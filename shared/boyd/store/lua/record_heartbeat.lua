-- Record a heartbeat, find out which of the process's agents have to be registered again, and keep freezes: what this
-- process remembers of them is written back where Redis has lost it.
-- info       what the process is, as JSON
-- alive      ms of silence after which a process counts as dead
-- known      id of each of its agents, and when this process registered it, ...
-- remembered  scope, mark, ... of the freezes that this process remembers
-- Returns {the ids of agents to register again}, {scope, mark, ... of all freezes}, the run of the server, and what names
-- all that was compared
local workers, worker_info, worker_joined, agents, registered, freezes, audit_open = unpack(KEYS)
local name, info, alive, known = unpack(ARGV, 1, 4)
-- @include audit expect fleet_state frozen note_beat rest server time
local remembered = rest(5)
known = cjson.decode(known)
local now = now_ms()
expect(workers, 'zset', worker_info, 'hash', worker_joined, 'string', agents, 'hash', registered, 'hash')
expect(freezes, 'hash', audit_open, 'stream')
note_beat(name, alive)
redis.call('HSET', worker_info, name, info)
local lost = {}
for i = 1, #known, 2 do
  local at = tonumber(redis.call('HGET', registered, known[i]) or '') or 0
  -- What anybody else has written there is replaced, too.
  local entry = redis.call('HGET', agents, known[i])
  if at < tonumber(known[i + 1]) or not entry or not pcall(cjson.decode, entry) then
    lost[#lost + 1] = known[i]
  end
end
for i = 1, #remembered, 2 do
  local scope, ours = remembered[i], remembered[i + 1]
  local mark = redis.call('HGET', freezes, scope)
  local at = changed_at(ours)
  if not reason_of(ours) and reason_of(mark) and at > math.max(now, changed_at(mark)) then
    -- Lifted by a clock that was ahead, and frozen since: the freeze holds, also once that time has come.
    redis.call('HSET', freezes, scope, string.format('%.0f', at + 1) .. ' ' .. reason_of(mark))
  elseif at > changed_at(mark) then
    redis.call('HSET', freezes, scope, ours)
    if reason_of(ours) then
      audit('freeze.restored', 'scope', scope, 'note', reason_of(ours), 'who', name)
    end
  end
end
redis.call('HSETNX', freezes, '+', '0')
local marks = redis.call('HGETALL', freezes)
local kept = {}
for i = 1, #marks, 2 do
  -- A lifted mark is kept for a day, so that no process that was away restores the freeze before it.
  if marks[i] ~= '+' and not reason_of(marks[i + 1]) and changed_at(marks[i + 1]) < now - 86400000 then
    redis.call('HDEL', freezes, marks[i])
  else
    kept[#kept + 1] = marks[i]
    kept[#kept + 1] = marks[i + 1]
  end
end
return {lost, kept, server_id(), fleet_state()}
