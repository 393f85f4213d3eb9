-- @include keys
-- Uses due
-- list_job(name, at): make a job due, and list it among the open ones, so that `repair_agent` can make it due again.
local function list_job(name, at)
  redis.call('ZADD', due, at, name)
  redis.pcall('SADD', key('jobs'), name)
end

-- unlist_job(name): remove a job that has ended.
local function unlist_job(name)
  redis.pcall('SREM', key('jobs'), name)
  redis.call('ZREM', due, name)
end
