-- list_job(key, due, name, at): make a job due, and list it among the open ones, from where `mend` makes it due
-- again if that is lost.
local function list_job(key, due, name, at)
  redis.call('ZADD', due, at, name)
  redis.pcall('SADD', string.sub(key, 1, -#name - 1) .. 'jobs', name)
end

-- unlist_job(key, due, name): a job has ended.
local function unlist_job(key, due, name)
  redis.pcall('SREM', string.sub(key, 1, -#name - 1) .. 'jobs', name)
  redis.call('ZREM', due, name)
end
