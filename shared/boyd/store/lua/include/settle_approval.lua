-- settle_approval(approvals, runs, id, status): move an item from pending to history; the caller has made sure that
-- it is pending. Unless it was approved, the runs that waited for it fail with it (L35).
-- approvals: {prefix, pending, history, fingerprints, events, keep_ms, keep_count}
-- runs: {prefix, index, finished, keep_ms, keep_count}
local function settle_approval(approvals, runs, id, status)
  local prefix, pending, history, fingerprints, events, keep_ms, keep_count = unpack(approvals)
  local key = prefix .. id
  local now = now_ms()
  redis.call('HSET', key, 'status', status, 'updatedAt', now)
  redis.call('ZREM', pending, id)
  redis.call('HDEL', fingerprints, redis.call('HGET', key, 'fingerprint'))
  redis.call('ZADD', history, now, id)
  emit(events, 'approval.' .. status, 'approval', id)
  -- What was approved is kept until it has been executed.
  if status ~= 'approved' then
    redis.call('PEXPIRE', key, keep_ms)
    for run in string.gmatch(redis.call('HGET', key, 'runIds') or '', '[%w-]+') do
      settle_run(runs[1], runs[2], runs[3], events, run, 'failed', 'reason', 'the approval was ' .. status,
        runs[4], tonumber(runs[5]))
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
end
