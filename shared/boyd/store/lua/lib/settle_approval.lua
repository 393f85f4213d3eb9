-- settle_approval(approvals, runs, id, status, ...): move an item from pending to history; the caller has made sure
-- that it is pending. Unless it was approved, the runs that waited for it fail with it (L35), and
-- the jobs that did go on (T7). What follows *status*
-- goes to the audit: who did it.
-- approvals: {pending, history, fingerprints, events, keep_ms, keep_count, {field, value, ... to store}}
-- runs: {prefix of the agent's keys, index, finished, due, audit, keep_ms, keep_count}
local function settle_approval(approvals, runs, id, status, ...)
  local pending, history, fingerprints, events, keep_ms, keep_count = unpack(approvals, 1, 6)
  local fields = approvals[7] or {}
  local prefix, trail = runs[1] .. 'approval:', runs[5]
  local key = prefix .. id
  local now = now_ms()
  local have = redis.call('HMGET', key, 'fingerprint', 'actionId', 'note', 'runIds', 'wakes', 'title', 'undoes', 'status')
  if have[8] ~= 'pending' then
    -- It was settled before, or never proposed whole.
    redis.call('ZREM', pending, id)
    if not have[8] then
      if have[1] and redis.call('HGET', fingerprints, have[1]) == id then
        redis.call('HDEL', fingerprints, have[1])
      end
      wake(runs[1], runs[4], have[5])
      for run in string.gmatch(have[4] or '', '%S+') do
        settle_run(runs, events, run, 'failed', 'reason', 'the approval could not be asked for', 'approval', id)
      end
      redis.call('DEL', key)
    end
    return
  end
  local note = have[3]
  for i = 1, #fields, 2 do
    note = fields[i] == 'note' and fields[i + 1] or note
  end
  -- What cannot be audited does not happen.
  audit(trail, 'approval.' .. status, 'approval', id, 'action', have[2], 'undoes', have[7], 'digest', have[1], 'before', 'pending',
    'after', status, 'note', note, ...)
  redis.call('HDEL', fingerprints, have[1])
  redis.call('ZADD', history, now, id)
  -- What was approved is kept until it has been executed.
  if status ~= 'approved' then
    redis.call('PEXPIRE', key, keep_ms)
    wake(runs[1], runs[4], have[5])
    for run in string.gmatch(have[4] or '', '%S+') do
      settle_run(runs, events, run, 'failed', 'reason', status == 'expired' and 'the approval has expired' or 'the approval was ' .. status, 'approval', id)
    end
  end
  local over = math.max(redis.call('ZCARD', history) - keep_count, redis.call('ZCOUNT', history, '-inf', now - keep_ms))
  if over > 0 then
    for _, old in ipairs(redis.call('ZRANGE', history, 0, math.min(over, 100) - 1)) do
      local state = redis.call('HGET', prefix .. old, 'executionState')
      if old ~= id and state ~= 'queued' and state ~= 'running' then
        redis.call('ZREM', history, old)
        redis.call('DEL', prefix .. old)
      end
    end
  end
  -- The status last, in one step with all that it means: what fails halfway is pending, and settled again.
  redis.call('HSET', key, 'status', status, 'updatedAt', now, unpack(fields))
  redis.call('ZREM', pending, id)
  redis.call('HINCRBY', key, 'version', 1)
  emit(events, 'approval.' .. status, 'approval', id, 'title', have[6] or have[2] or '')
end
