-- now_ms(): the Redis server's clock, in milliseconds since the epoch.
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- emit(events, kind, field, value, ...): append to an agent's event stream, which keeps its last ~1000 entries. An event
-- that cannot be written stops nothing: that it could not is noted in the hash `loop`, where `boyd doctor` finds it.
local function emit(events, kind, ...)
  local said = redis.pcall('XADD', events, 'MAXLEN', '~', 1000, '*', 'kind', kind, ...)
  if type(said) == 'table' and said.err then
    local loop = string.gsub(events, 'events$', 'loop')
    redis.pcall('HSET', loop, 'eventsLostAt', now_ms(), 'eventsLostWhy', tostring(said.err))
  end
end

-- server_id(): names this run of the Redis server. It changes with a restart or a failover, after which the last
-- writes before it may be gone.
local function server_id()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
end
