-- @include expect flight_limits place_job schedule_job time
-- Uses due
-- expect_verification(id): raise an error unless a verification can start.
local function expect_verification(id)
  expect(key('verify:' .. id), 'hash', due, 'zset')
end

-- begin_verification(execution): start a job that verifies an execution, or one that may have happened, if its action can
-- be verified. It stays in flight on its target until the verdict if its action waits for that; otherwise return the job
-- whose turn it is now.
local function begin_verification(execution)
  local have = redis.call('HMGET', execution, 'id', 'action', 'target', 'verify', 'verdict')
  local id, action, target = have[1], have[2], have[3]
  if have[5] then
    return
  end
  local plan = have[4] and cjson.decode(have[4])
  if plan then
    local name, now = 'verify:' .. id, now_ms()
    place_job(name, plan.queue, plan.every)
    -- No message: the sweeper sends it when the first check is due.
    redis.call('HSET', key(name), 'action', action, 'executionNotBefore', now + plan.every)
    redis.call('HSET', execution, 'verdict', 'open', 'verifyUntil', now + plan.within)
  end
  if not (plan and plan.hold) then
    return leave_flight(flight_field(action, target), id)
  end
end
