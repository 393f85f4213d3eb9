-- @include keys time
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

-- done_before(target): return the last three executions on a target in words, the latest first, and what came of them.
local function done_before(target)
  local lines = {}
  for _, id in ipairs(target ~= '' and redis.pcall('ZRANGE', key('touched', target), -3, -1) or {}) do
    local have = redis.pcall('HMGET', key('execution', id), 'action', 'startedAt', 'state', 'verdict')
    if have[2] and have[3] then
      local minutes = math.max(1, math.floor((now_ms() - have[2]) / 60000))
      local age = minutes < 120 and minutes .. ' min' or math.floor(minutes / 60) .. ' h'
      local title = (string.sub(id, 1, 9) == 'rollback:' and 'undo of ' or '') .. have[1]
      local effect = have[4] or have[3] == 'succeeded' and 'call succeeded' or have[3]
      table.insert(lines, 1, title .. ' (' .. age .. ' earlier): ' .. effect)
    end
  end
  return table.concat(lines, '; ')
end
