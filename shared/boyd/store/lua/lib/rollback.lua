-- @include is_open keys
-- is_unresolved(approval): return true if that approval waits for a person, or is being executed.
local function is_unresolved(approval)
  return redis.call('HGET', key('approval', approval), 'status') == 'pending' or is_open('approval:' .. approval)
end

-- rollback_refusal(id): return the reason why no rollback of an execution can be requested now, and the obstacle; nil if
-- one can.
local function rollback_refusal(id)
  local have = redis.call('HMGET', key('execution', id), 'state', 'rollbackCall', 'verdict', 'compensation')
  if string.sub(id, 1, 9) == 'rollback:' then
    return 'rollback', ''
  elseif have[1] ~= 'succeeded' then
    return 'state', have[1] or ''
  end
  local done = redis.call('HGET', key('execution', 'rollback:' .. id), 'state')
  if done then
    return 'done', done
  end
  local procedure = string.match(id, '^step:(.+):[^:]+$')
  for at = 0, procedure and 19 or -1 do
    local step = redis.call('HGET', key('procedure', procedure), 'step:' .. at)
    local undone = step and cjson.decode(step)
    if undone and undone.execution == id and type(undone.compensation) == 'table'
        and undone.compensation.state ~= 'left' then
      return 'done', undone.compensation.state
    end
  end
  local call = have[2]
  if call and is_open('call:' .. call) then
    return 'requested', 'call:' .. call
  end
  local approval = call and redis.call('HGET', key('call:' .. call), 'approvalId')
  if approval and is_unresolved(approval) then
    return 'asked', approval
  end
  if have[3] == 'worse' and not have[4] and is_open('verify:' .. id) then
    return 'compensating', ''
  end
  approval = have[4] and cjson.decode(have[4]).approval
  if approval and is_unresolved(approval) then
    return 'asked', approval
  end
end
