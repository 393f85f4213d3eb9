-- Record a heartbeat, find out which of the process's agents have to be registered again, and keep freezes: what this
-- process remembers of them is written back where Redis has lost it. Processes silent for an hour are forgotten.
-- KEYS[1] workers    zset: name by last heartbeat, ms
-- KEYS[2] info       hash: name to what it is, as JSON
-- KEYS[3] agents     hash: agent id to its entry, as JSON
-- KEYS[4] registered hash: agent id to when it was registered, ms; `retired <ms>` once it is retired: this process runs it
--                    all the same, and registers it again
-- KEYS[5] freezes    hash: agent id, or * for all, to its mark: `<ms> <reason>`, or `<ms>` once it is lifted; + while
--                    nothing of it was lost
-- KEYS[6] audit      stream: open audit entries of the deployment
-- ARGV[1] name
-- ARGV[2] info       JSON
-- ARGV[3] agents     how many of the following arguments are an agent's id and when this process registered it, ...
-- ARGV[4...] those, then scope, mark, ... of the freezes that this process remembers
-- Returns {the ids of agents to register again}, {scope, mark, ... of all freezes}
-- @include common
-- @include audit
-- @include frozen
-- @include changed_at
local now = now_ms()
redis.call('ZADD', KEYS[1], now, ARGV[1])
-- Heartbeats from before the clock stepped back count as given now: they must not outlive those who gave them.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')) do
  redis.call('ZADD', KEYS[1], now, name)
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - 3600000)) do
  redis.call('ZREM', KEYS[1], name)
  redis.call('HDEL', KEYS[2], name)
end
local lost = {}
local first = 4 + ARGV[3]
for i = 4, first - 1, 2 do
  local at = tonumber(redis.call('HGET', KEYS[4], ARGV[i]) or '') or 0
  if at < tonumber(ARGV[i + 1]) or redis.call('HEXISTS', KEYS[3], ARGV[i]) == 0 then
    lost[#lost + 1] = ARGV[i]
  end
end
for i = first, #ARGV, 2 do
  local mark = redis.call('HGET', KEYS[5], ARGV[i])
  local at = changed_at(ARGV[i + 1])
  if not reason_of(ARGV[i + 1]) and reason_of(mark) and at > math.max(now, changed_at(mark)) then
    -- Lifted by a clock that was ahead, and frozen since: the freeze holds, also once that time has come.
    local later = string.format('%.0f', at + 1)
    redis.call('HSET', KEYS[5], ARGV[i], later .. ' ' .. reason_of(mark))
  elseif at > changed_at(mark) then
    redis.call('HSET', KEYS[5], ARGV[i], ARGV[i + 1])
    if reason_of(ARGV[i + 1]) then
      audit(KEYS[6], 'freeze.restored', 'scope', ARGV[i], 'note', reason_of(ARGV[i + 1]), 'who', ARGV[1])
    end
  end
end
redis.call('HSETNX', KEYS[5], '+', '0')
local marks = redis.call('HGETALL', KEYS[5])
local kept = {}
for i = 1, #marks, 2 do
  -- A lifted mark is kept for a day, so that no process that was away restores the freeze before it.
  if marks[i] ~= '+' and not reason_of(marks[i + 1]) and changed_at(marks[i + 1]) < now - 86400000 then
    redis.call('HDEL', KEYS[5], marks[i])
  else
    kept[#kept + 1] = marks[i]
    kept[#kept + 1] = marks[i + 1]
  end
end
return {lost, kept}
