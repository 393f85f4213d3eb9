-- A job has passed its deadline: its message was lost or waits, or its worker let the lease lapse.
-- KEYS[1] job      hash
-- KEYS[2] due        zset: what must move on, by deadline
-- ARGV[1] name
-- ARGV[2] resend_after   ms
-- ARGV[3] attempts   how many workers it may lose without getting on
-- ARGV[4] queue_timeout   ms that it may wait for a worker, or empty: for ever
-- ARGV[5] score      that the sweeper pushed it to: if it is another now, somebody has moved it since
-- Returns {'send'|'give up', attempt, queue, worker} or {'none'}
-- @include common
-- @include list_job
if tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or 0) ~= tonumber(ARGV[5]) then
  return {'none'}
end
local have = redis.call('HMGET', KEYS[1], 'executionState', 'executionAttempt', 'queue', 'executionBy', 'queuedAt',
  'executionNotBefore', 'executionBase')
local state, attempt, queue, by = have[1], tonumber(have[2]), have[3] or '', have[4] or ''
if state ~= 'queued' and state ~= 'running' then
  unlist_job(KEYS[1], KEYS[2], ARGV[1])
  return {'none'}
end
local now = now_ms()
if state == 'queued' and have[6] and now < tonumber(have[6]) then
  redis.call('ZADD', KEYS[2], math.min(have[6], now + 540000), ARGV[1])
  return {'none'}
end
if state == 'queued' and have[6] then
  -- Nobody could take it before: from now on it waits for a worker.
  redis.call('HDEL', KEYS[1], 'executionNotBefore')
  redis.call('HSET', KEYS[1], 'queuedAt', now)
  have[5] = now
end
local waited = state == 'queued' and ARGV[4] ~= '' and now - have[5] > tonumber(ARGV[4])
if waited or (state == 'running' and attempt - (have[7] or 0) >= tonumber(ARGV[3])) then
  -- A new attempt shuts out whoever had it, or gets its message now, before anybody says how it ended.
  attempt = redis.call('HINCRBY', KEYS[1], 'executionAttempt', 1)
  redis.call('HSET', KEYS[1], 'executionState', 'running', 'executionBy', by)
  redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
  return {'give up', attempt, queue, by}
end
local wait = ARGV[2]
if state == 'running' then
  attempt = redis.call('HINCRBY', KEYS[1], 'executionAttempt', 1)
  redis.call('HSET', KEYS[1], 'executionState', 'queued', 'executionResends', 0, 'queuedAt', now)
  redis.call('HDEL', KEYS[1], 'executionStartedAt')
else
  wait = ARGV[2] * 2 ^ math.min(redis.call('HINCRBY', KEYS[1], 'executionResends', 1), 4)
end
redis.call('ZADD', KEYS[2], now + wait, ARGV[1])
return {'send', attempt, queue, by}
