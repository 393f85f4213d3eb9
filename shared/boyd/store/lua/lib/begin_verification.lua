-- @include expect flight_limits place_job put_off time
-- Uses due
-- expect_verification(id): raise an error unless a verification can start.
local function expect_verification(id)
  expect(key('verify:' .. id), 'hash', due, 'zset')
end

-- begin_verification(execution, have): start a job that verifies an execution, or one that may have happened, if its action
-- can be verified. It stays in flight on its target until the verdict if its action waits for that; otherwise return the job
-- whose turn it is now. *have* has its id, action, target, verify and verdict.
local function begin_verification(execution, have)
  if have.verdict then
    return
  end
  local id, action, plan = have.id, have.action, have.verify and cjson.decode(have.verify)
  if plan then
    local name = 'verify:' .. id
    place_job(name, plan.queue, plan.every)
    -- No message: the sweeper sends it when the first check is due.
    put_off(name, plan.every)
    redis.call('HSET', key(name), 'action', action)
    redis.call('HSET', execution, 'verdict', 'open', 'verifyUntil', now_ms() + plan.within)
  end
  if not (plan and plan.hold) then
    return leave_flight(flight_field(action, have.target), id)
  end
end
