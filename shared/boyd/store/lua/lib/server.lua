-- server_id(): return an id of this run of the Redis server. A restart or a failover changes it; after either, the last
-- writes may be lost.
local function server_id()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
end
