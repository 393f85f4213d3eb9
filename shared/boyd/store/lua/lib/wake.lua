-- @include expect keys time
-- Uses due
-- expect_jobs(names): raise an error, before anything is written, if one of these jobs could not be woken.
local function expect_jobs(names)
  for name in string.gmatch(names or '', '%S+') do
    expect(key(name), 'hash')
  end
end

-- wake(names): make the jobs of those *names*, separated by spaces, due now: what they waited for has come.
local function wake(names)
  for name in string.gmatch(names or '', '%S+') do
    local job = key(name)
    local state = redis.call('HGET', job, 'executionState')
    if state == 'queued' then
      local now = now_ms()
      redis.call('HDEL', job, 'executionNotBefore')
      redis.call('HSET', job, 'queuedAt', now)
      redis.call('ZADD', due, now, name)
    elseif state == 'running' then
      redis.call('HSET', job, 'executionWoken', 1)
    end
  end
end
