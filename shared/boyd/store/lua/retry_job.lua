-- Decide what becomes of a job that has passed its deadline: its message was lost or waits, or its worker let the lease
-- lapse.
-- name       its kind and id
-- max_attempts  how many workers it may lose without getting on
-- queue_timeout  ms that it may wait for a worker, or empty: for ever
-- score      that the sweeper pushed it to: if it is another now, somebody has moved it since
-- Returns {'send'|'give up', attempt, queue, worker}, {'none'}, or {'newer', format version}
-- What it has lost is noted, of the last attempts only: each a line of attempt, begin and end in ms, and worker.
local job, due = unpack(KEYS)
local name, resend_after, max_attempts, queue_timeout, score = unpack(ARGV)
-- @include format put_off schedule_job time
if tonumber(redis.call('ZSCORE', due, name) or 0) ~= tonumber(score) then
  return {'none'}
end
local have = redis.call('HMGET', job, 'executionState', 'executionAttempt', 'queue', 'executionBy', 'queuedAt',
  'executionNotBefore', 'executionBase', 'formatVersion', 'executionStartedAt', 'executionLost', 'executionWait')
local state, attempt, queue, by = have[1], tonumber(have[2]), have[3] or '', have[4] or ''
local queued_at, not_before, base = have[5], have[6], have[7]
if newer(have[8]) then
  return {'newer', newer(have[8])}
end
if state ~= 'queued' and state ~= 'running' then
  unschedule_job(name)
  return {'none'}
end
local now = now_ms()
local lost = have[10] or ''
if state == 'running' and #lost < 4000 then
  lost = string.format('%s%d %s %d %s\n', lost, attempt, have[9] or now, now, string.match(by, '^(.*)/') or by)
end
if state == 'queued' and not_before and now < tonumber(not_before) then
  -- The clock has stepped back if the wait has become longer: it begins again.
  local left, wait = not_before - now, tonumber(have[11])
  put_off(name, math.min(left, wait or left))
  return {'none'}
end
if state == 'queued' and not_before then
  -- Nobody could take it before: from now on it waits for a worker.
  redis.call('HDEL', job, 'executionNotBefore')
  redis.call('HSET', job, 'queuedAt', now)
  queued_at = now
end
local waited = state == 'queued' and queue_timeout ~= '' and now - queued_at > tonumber(queue_timeout)
if waited or (state == 'running' and attempt - (base or 0) >= tonumber(max_attempts)) then
  -- A new attempt fences off the previous worker, which may get its message only now, before the job is ended.
  attempt = redis.call('HINCRBY', job, 'executionAttempt', 1)
  by = waited and '' or by
  redis.call('HSET', job, 'executionState', 'running', 'executionBy', by, 'executionLost', lost)
  redis.call('ZADD', due, now + resend_after, name)
  return {'give up', attempt, queue, by}
end
local wait = resend_after
if state == 'running' then
  attempt = redis.call('HINCRBY', job, 'executionAttempt', 1)
  redis.call('HSET', job, 'executionState', 'queued', 'executionResends', 0, 'queuedAt', now,
    'executionLost', lost)
  redis.call('HDEL', job, 'executionStartedAt')
else
  wait = resend_after * 2 ^ math.min(redis.call('HINCRBY', job, 'executionResends', 1), 4)
end
redis.call('ZADD', due, now + wait, name)
return {'send', attempt, queue, by}
