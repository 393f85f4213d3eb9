-- @include keys wake
-- stop_investigation(id, by): have the next worker of an investigation end it without starting another action. Returns
-- false if it has ended or was cancelled before.
local function stop_investigation(id, by)
  local investigation = key('investigation', id)
  local have = redis.call('HMGET', investigation, 'status', 'cancelled', 'approvalId')
  if not have[1] or have[1] == 'ended' or have[2] then
    return false
  end
  redis.call('HSET', investigation, 'cancelled', 1, 'cancelledBy', by)
  -- An approval of this investigation that no worker has started yet is not executed.
  local approval = key('approval', have[3] or '')
  if redis.pcall('HGET', approval, 'status') == 'approved' then
    redis.call('HSET', approval, 'cancelled', 1)
  end
  wake('investigation:' .. id)
  return true
end
