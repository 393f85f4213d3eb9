-- server_id(): names this run of the Redis server. It changes with a restart or a failover, after which the last
-- writes before it may be gone.
local function server_id()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
end
