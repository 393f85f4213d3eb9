-- @include keys wake
-- stop_investigation(id, by): have its next worker end an investigation that has not ended; no action is started for it
-- any more. Returns whether it had not been cancelled before.
local function stop_investigation(id, by)
  local investigation = key('investigation', id)
  local have = redis.call('HMGET', investigation, 'status', 'cancelled', 'approvalId')
  if not have[1] or have[1] == 'ended' or have[2] then
    return false
  end
  redis.call('HSET', investigation, 'cancelled', 1, 'cancelledBy', by)
  -- What a person has allowed and no worker has started yet is not started; it is for this investigation only.
  local approval = key('approval', have[3] or '')
  if redis.pcall('HGET', approval, 'status') == 'approved' then
    redis.call('HSET', approval, 'cancelled', 1)
  end
  wake('investigation:' .. id)
  return true
end
