-- @include move_on time
-- Uses iteration, due
-- watch_batches(resend_after): see that every open batch of the observe phase is due, and that as many are counted as
-- there are; a lost key may have left it otherwise. With none left, the observe phase ends. Returns how many are open.
local function watch_batches(resend_after)
  local now = now_ms()
  local have = redis.call('HMGET', iteration, 'batches', 'open')
  local open = 0
  for k = 1, tonumber(have[1]) or 0 do
    local batch = 'batch:' .. k
    if redis.call('HEXISTS', iteration, batch) == 1 then
      open = open + 1
      if not redis.call('ZSCORE', due, batch) then
        redis.call('ZADD', due, now, batch)
      end
    end
  end
  if open == 0 then
    move_on('observe', 'orient', resend_after)
    return 0
  end
  if open ~= tonumber(have[2]) then
    redis.call('HSET', iteration, 'open', open)
  end
  redis.call('ZADD', due, now + 2 * resend_after, 'phase')
  return open
end
