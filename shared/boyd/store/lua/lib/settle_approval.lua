-- @include audit emit expect keys put_in_order settle_run time wake
-- Uses approvals_pending, approvals_history, approvals_fingerprints, audit_open, retention
-- expect_approval(id): raise an error, before anything is written, if this item could not be moved to history.
local function expect_approval(id)
  local approval = key('approval', id)
  expect(approvals_pending, 'zset', approvals_history, 'zset', approvals_fingerprints, 'hash', audit_open, 'stream',
    approval, 'hash')
  local have = redis.call('HMGET', approval, 'runIds', 'wakes')
  expect_runs(have[1])
  expect_jobs(have[2])
  expect_jobs('notice:' .. id)
end

-- drop_approval(id): forget an item that was never proposed whole, and wake what waits for it.
local function drop_approval(id)
  local approval = key('approval', id)
  local have = redis.call('HMGET', approval, 'fingerprint', 'wakes', 'runIds')
  if have[1] and redis.call('HGET', approvals_fingerprints, have[1]) == id then
    redis.call('HDEL', approvals_fingerprints, have[1])
  end
  wake(have[2])
  for run in string.gmatch(have[3] or '', '%S+') do
    settle_run(run, 'failed', 'reason', 'the approval could not be asked for', 'approval', id)
  end
  redis.call('DEL', approval)
end

-- forget_approvals(now, id): forget the oldest items of history, but not *id* and none that is being executed.
local function forget_approvals(now, id)
  local keep_ms, keep_count = unpack(retention.items)
  local over = math.max(redis.call('ZCARD', approvals_history) - keep_count,
    redis.call('ZCOUNT', approvals_history, '-inf', now - keep_ms))
  if over > 0 then
    for _, old in ipairs(redis.call('ZRANGE', approvals_history, 0, math.min(over, 100) - 1)) do
      local state = redis.pcall('HGET', key('approval', old), 'executionState')
      if old ~= id and state ~= 'queued' and state ~= 'running' then
        redis.call('ZREM', approvals_history, old)
        redis.call('DEL', key('approval', old))
      end
    end
  end
end

-- settle_approval(id, status, fields, ...): move an item from pending to history. Unless it was approved, the runs that
-- waited for it fail with it, and the jobs that waited for it go on. *fields* are stored with it; what follows them goes
-- to the audit: the actor.
local function settle_approval(id, status, fields, ...)
  local approval = key('approval', id)
  local now = now_ms()
  local have = redis.call('HMGET', approval, 'fingerprint', 'actionId', 'note', 'runIds', 'wakes', 'title', 'undoes',
    'status')
  if have[8] ~= 'pending' then
    redis.call('ZREM', approvals_pending, id)
    if not have[8] then
      drop_approval(id)
    end
    return
  end
  local note = have[3]
  for i = 1, #fields, 2 do
    note = fields[i] == 'note' and fields[i + 1] or note
  end
  -- What cannot be audited does not happen.
  audit('approval.' .. status, 'approval', id, 'action', have[2], 'undoes', have[7], 'digest', have[1],
    'before', 'pending', 'after', status, 'note', note, ...)
  -- Proposed again after its deadline, the same action has another item by now.
  if redis.call('HGET', approvals_fingerprints, have[1]) == id then
    redis.call('HDEL', approvals_fingerprints, have[1])
  end
  put_in_order(approvals_history, now, id)
  if status == 'approved' then
    -- It is kept until it has been executed.
    redis.call('PERSIST', approval)
  else
    redis.call('PEXPIRE', approval, retention.items[1])
    wake(have[5])
    local why = status == 'expired' and 'the approval has expired' or 'the approval was ' .. status
    for run in string.gmatch(have[4] or '', '%S+') do
      settle_run(run, 'failed', 'reason', why, 'approval', id)
    end
  end
  wake('notice:' .. id)
  forget_approvals(now, id)
  -- The status last, in one step with all that it means: what fails halfway is pending, and settled again.
  redis.call('HSET', approval, 'status', status, 'updatedAt', now, 'resolvedAt', now, unpack(fields))
  redis.call('ZREM', approvals_pending, id)
  redis.call('HINCRBY', approval, 'version', 1)
  emit('approval.' .. status, 'approval', id, 'title', have[6] or have[2] or '')
end
