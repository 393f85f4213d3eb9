-- @include emit owns_phase rest time with_step
-- Uses iteration, due
-- move_on(phase, following, wait, queue, have, fields, successor): end *phase* and make the *following* one due in *wait* ms,
-- on *queue* if it is not the usual one. A *successor*, unless empty, enters it in the same step; *wait* is its lease then.
-- An attempt at a phase that was abandoned gets the mark of one that does not count in *steps*. *have* is what `read_phase`
-- returned, if the caller has asked it; *fields* are stored in the same step.
local function move_on(phase, following, wait, queue, have, fields, successor)
  local now = now_ms()
  have, fields = have or read_phase(iteration), fields or {}
  local steps, entered = have[7] or '', (successor or '') ~= ''
  if have[4] or phase == 'observe' then
    local mark = have[8] == phase and 'x' or '-'
    steps = with_step(steps, phase, have[5], now, have[6], have[4], mark)
  end
  local changes = {'phase', following, 'sentAt', now, 'phaseAt', now, 'resends', 0, 'attempts', 0,
    'queue', queue or '', 'ms:' .. phase, now - (tonumber(have[5]) or now), 'steps', steps}
  for _, value in ipairs(changes) do
    fields[#fields + 1] = value
  end
  if entered then
    fields[#fields + 1] = 'entered'
    fields[#fields + 1] = successor
  end
  -- First, as the caller need not have read this key: if it is of another kind, nothing is changed.
  redis.call('ZADD', due, now + wait, 'phase')
  store(iteration, fields)
  if have[4] and not entered then
    redis.call('HDEL', iteration, 'entered')
  end
  emit('phase', 'iteration', have[1], 'phase', following)
end
