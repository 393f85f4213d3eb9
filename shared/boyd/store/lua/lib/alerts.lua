-- Uses intake_alerts, intake_latest
-- Remember changes of alerts, beginnings and ends: for so many ms, and so many of them.
local ALERT_MS, ALERT_COUNT = 300000, 10000

-- last_change(name, now): return the time and the digest of the last change taken as *name*, which is <alert>:firing or
-- <alert>:resolved; nil if it has been forgotten.
local function last_change(name, now)
  local came = redis.call('ZSCORE', intake_alerts, name)
  local text = came and now - came <= ALERT_MS and redis.call('HGET', intake_latest, name)
  if text then
    local at, same = string.match(text, '^(%S+) (%S+)$')
    return tonumber(at), same
  end
end

-- remember_changes(changes, now): remember time and digest by <alert>:firing or <alert>:resolved, and forget what is old.
local function remember_changes(changes, now)
  for name, change in pairs(changes) do
    redis.call('ZADD', intake_alerts, now, name)
    redis.call('HSET', intake_latest, name, string.format('%.0f %s', unpack(change)))
  end
  if not next(changes) then
    return
  end
  local expired = redis.call('ZCOUNT', intake_alerts, '-inf', '(' .. now - ALERT_MS)
  local gone = math.max(expired, redis.call('ZCARD', intake_alerts) - ALERT_COUNT)
  local old = gone > 0 and redis.call('ZRANGE', intake_alerts, 0, gone - 1) or {}
  for i = 1, #old, 1000 do
    redis.call('ZREM', intake_alerts, unpack(old, i, math.min(i + 999, #old)))
    redis.call('HDEL', intake_latest, unpack(old, i, math.min(i + 999, #old)))
  end
  redis.call('PEXPIRE', intake_alerts, ALERT_MS)
  redis.call('PEXPIRE', intake_latest, ALERT_MS)
end
