-- wake(prefix, due, names): what the jobs of those *names*, separated by spaces, waited for has come: they are due now.
local function wake(prefix, due, names)
  for name in string.gmatch(names or '', '%S+') do
    local state = redis.call('HGET', prefix .. name, 'executionState')
    if state == 'queued' then
      local now = now_ms()
      redis.call('HDEL', prefix .. name, 'executionNotBefore')
      redis.call('HSET', prefix .. name, 'queuedAt', now)
      redis.call('ZADD', due, now, name)
    elseif state == 'running' then
      redis.call('HSET', prefix .. name, 'executionWoken', 1)
    end
  end
end
