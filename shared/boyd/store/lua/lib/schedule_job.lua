-- @include keys
-- Uses due
-- schedule_job(name, at): make a job due, and remember it as open, so that `repair_agent` can make it due again.
local function schedule_job(name, at)
  redis.call('ZADD', due, at, name)
  redis.pcall('SADD', key('jobs'), name)
end

-- unschedule_job(name): remove a job that has ended.
local function unschedule_job(name)
  redis.pcall('SREM', key('jobs'), name)
  redis.call('ZREM', due, name)
end
