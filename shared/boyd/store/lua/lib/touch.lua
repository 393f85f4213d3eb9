-- @include keys
-- touch(target, id, now): note for a day that an execution acts on a target. Only the last executions are kept, and a
-- failure stops no action.
local function touch(target, id, now)
  if target == '' then
    return
  end
  local touched = key('touched', target)
  redis.pcall('ZADD', touched, now, id)
  if redis.pcall('ZCARD', touched) == 65 then
    redis.pcall('ZREM', touched, redis.pcall('ZRANGE', touched, 0, 0)[1])
  end
  redis.pcall('PEXPIRE', touched, 86400000)
end

-- touched_since(target, id, started): return another execution that started to act on a target since that one did, or nil.
local function touched_since(target, id, started)
  local touched = key('touched', target)
  for _, other in ipairs(redis.call('ZRANGEBYSCORE', touched, started or 0, '+inf')) do
    if other ~= id then
      return other
    end
  end
end
