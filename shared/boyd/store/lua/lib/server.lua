-- server_id(): return an id of this run of the Redis server. A restart or a failover changes it; after either, the last
-- writes may be lost.
local run_id
local function server_id()
  if not run_id then
    local info = redis.pcall('INFO', 'server')
    run_id = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
  end
  return run_id
end
