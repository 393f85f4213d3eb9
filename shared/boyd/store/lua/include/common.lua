-- now_ms(): the Redis server's clock, in milliseconds since the epoch.
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- emit(events, kind, field, value, ...): append to an agent's event stream, which keeps its last ~1000 entries.
local function emit(events, kind, ...)
  redis.call('XADD', events, 'MAXLEN', '~', 1000, '*', 'kind', kind, ...)
end
