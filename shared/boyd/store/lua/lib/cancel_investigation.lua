-- cancel_investigation(prefix, due, id, by): have its next worker end an investigation that has not ended; no action is
-- started for it any more. Whether it had not been cancelled before.
local function cancel_investigation(prefix, due, id, by)
  local name = 'investigation:' .. id
  local have = redis.call('HMGET', prefix .. name, 'status', 'cancelled', 'approvalId')
  if not have[1] or have[1] == 'ended' or have[2] then
    return false
  end
  redis.call('HSET', prefix .. name, 'cancelled', 1, 'cancelledBy', by)
  -- What a person has allowed and no worker has started yet is not started; it is for this investigation only.
  local approval = prefix .. 'approval:' .. (have[3] or '')
  if redis.call('HGET', approval, 'status') == 'approved' then
    redis.call('HSET', approval, 'cancelled', 1)
  end
  wake(prefix, due, name)
  return true
end
