-- @include expect hold list_job place_job time
-- Uses due, held_actions
-- expect_verification(id, action, target): raise an error unless a verification can be begun.
local function expect_verification(id, action, target)
  local job, held = key('verify:' .. id), hold_key(action, target)
  expect(job, 'hash', held, 'hash', held_actions, 'zset', due, 'zset')
end

-- begin_verification(execution): what was executed, or may have been, is verified by a job, if its action can be.
local function begin_verification(execution)
  local have = redis.call('HMGET', execution, 'id', 'action', 'target', 'verify', 'situation', 'verdict')
  if not have[4] or have[6] then
    return
  end
  local plan, name, now = cjson.decode(have[4]), 'verify:' .. have[1], now_ms()
  place_job(name, plan.queue, plan.every)
  -- No message: the sweeper sends it when the first check is due.
  redis.call('HSET', key(name), 'action', have[2], 'executionNotBefore', now + plan.every)
  redis.call('HSET', execution, 'verdict', 'open', 'verifyUntil', now + plan.within)
  local held = hold_key(have[2], have[3])
  if plan.hold and redis.call('HGET', held, 'kind') ~= 'suspended' then
    -- The verdict ends the hold; an hour later it ends even if the job was lost with its data.
    hold(have[2], have[3], {kind = 'open', execution = have[1]}, plan.within + 3600000)
  end
end
