-- End the iteration: its record becomes history, its runs end, the agent is free; if work waits, the follow-up
-- starts in the same step (L3, L35, L37), unless this one was to be the last.
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] loop       hash: counter, iteration in flight, last slot, paused
-- KEYS[3] due        zset: what must move on, by deadline
-- KEYS[4] events     stream
-- KEYS[5] history    zset: kept iterations by end
-- KEYS[6] archive    hash: where the record goes
-- KEYS[7] pending    zset: pending runs by urgency
-- KEYS[8] intake     list: what waits from outside
-- KEYS[9] runs       zset: all runs by creation
-- KEYS[10] finished  zset: finished runs by end
-- KEYS[11] audit     stream: what is not sealed yet
-- ARGV[1] n
-- ARGV[2] epoch
-- ARGV[3] worker     as it entered, or empty: the sweeper ends what nobody can complete
-- ARGV[4] resend_after   ms
-- ARGV[5] success    1 or 0
-- ARGV[6] error      or empty
-- ARGV[7] keep age   of iterations, ms
-- ARGV[8] keep count of iterations
-- ARGV[9] prefix    of archived iterations; touches those that are forgotten (same slot)
-- ARGV[10] prefix    of the agent's keys; touches run: and callback: hashes (same slot)
-- ARGV[11] keep age  of finished runs, ms
-- ARGV[12] keep count of finished runs
-- ARGV[13] action    what was decided, for the event
-- ARGV[14] summary   of the situation, for the event
-- ARGV[15] problems  JSON
-- ARGV[16] unheard   JSON: the result of runs that two iterations in a row could not even claim
-- ARGV[17] outline   JSON: what a list tells of the result
-- ARGV[18] results   JSON: of its action, or empty: as its act phase has stored them
-- ARGV[19...] run id, status or empty while it waits, result as JSON, approval id or empty, ...
-- Returns {'ok', number of the follow-up or 0} or {'stale'}
-- Events  iteration.completed, iteration.failed, run.completed, run.failed, run.waiting, iteration.started
-- @include common
-- @include audit
-- @include list_job
-- @include place_job
-- @include begin_iteration
-- @include work_waits
-- @include settle_run
local have = redis.call('HMGET', KEYS[1], 'iteration', 'epoch', 'phase', 'entered', 'startedAt', 'trigger', 'runs',
  'phaseAt', 'last')
if have[1] ~= ARGV[1] or have[2] ~= ARGV[2] or have[3] ~= 'complete' or (ARGV[3] ~= '' and have[4] ~= ARGV[3]) then
  return {'stale'}
end
local runs = {ARGV[10], KEYS[9], KEYS[10], KEYS[3], KEYS[11], ARGV[11], tonumber(ARGV[12])}
for i = 19, #ARGV, 4 do
  local run = ARGV[10] .. 'run:' .. ARGV[i]
  if ARGV[i + 1] ~= '' then
    settle_run(runs, KEYS[4], ARGV[i], ARGV[i + 1], 'result', ARGV[i + 2], 'iteration', ARGV[1])
  else
    local state = redis.call('HMGET', run, 'status', 'result')
    if state[1] == 'investigating' then
      redis.call('HSET', run, 'approvalId', ARGV[i + 3], 'result', ARGV[i + 2])
      emit(KEYS[4], 'run.waiting', 'run', ARGV[i], 'approval', ARGV[i + 3])
    elseif state[1] == 'failed' and not state[2] then
      -- Whoever denied the approval was quicker than the iteration; what it found is kept.
      settle_run(runs, KEYS[4], ARGV[i], 'failed', 'result', ARGV[i + 2])
    end
  end
end
local now = now_ms()
redis.call('HSET', KEYS[1], 'success', ARGV[5], 'endedAt', now, 'problems', ARGV[15],
  'ms:complete', now - have[8], 'outline', ARGV[17])
if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[1], 'error', ARGV[6])
end
if ARGV[18] ~= '' then
  redis.call('HSET', KEYS[1], 'results', ARGV[18])
end
redis.call('ZADD', KEYS[5], now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[7])
-- From here on it has ended; if anything fails now, `mend` frees the agent.
redis.call('RENAME', KEYS[1], KEYS[6])
redis.call('HDEL', KEYS[6], 'phase', 'entered', 'sentAt', 'phaseAt', 'resends', 'attempts', 'open', 'batches', 'queue',
  'server', 'cancelled', 'unserved', 'abandoned', 'last')
redis.call('HDEL', KEYS[2], 'active')
redis.call('ZREM', KEYS[3], 'phase')
emit(KEYS[4], ARGV[5] == '1' and 'iteration.completed' or 'iteration.failed', 'iteration', ARGV[1],
  'ms', now - have[5], 'action', ARGV[13], 'summary', ARGV[14], 'error', ARGV[6])
local over = math.max(redis.call('ZCARD', KEYS[5]) - ARGV[8], redis.call('ZCOUNT', KEYS[5], '-inf', now - ARGV[7]))
if over > 0 then
  for _, old in ipairs(redis.call('ZRANGE', KEYS[5], 0, math.min(over, 100) - 1)) do
    redis.call('ZREM', KEYS[5], old)
    redis.call('DEL', ARGV[9] .. old)
  end
end
-- An iteration that fails before it claims its runs is followed by another; if that fails in the same way, the runs
-- fail with it instead of starting one iteration after the other for ever.
if ARGV[5] ~= '1' and have[6] == 'follow-up' and not have[7] then
  for _, id in ipairs(redis.call('ZRANGE', KEYS[7], 0, 99)) do
    -- Those that came since it began have not been failed twice.
    local created = tonumber(redis.call('HGET', ARGV[10] .. 'run:' .. id, 'createdAt') or '')
    if not created then
      redis.call('ZREM', KEYS[7], id)
    elseif created < tonumber(have[5]) then
      redis.call('ZREM', KEYS[7], id)
      redis.call('HSET', ARGV[10] .. 'run:' .. id, 'status', 'investigating', 'iteration', ARGV[1])
      settle_run(runs, KEYS[4], id, 'failed', 'result', ARGV[16], 'iteration', ARGV[1])
    end
  end
  if redis.call('ZCARD', KEYS[7]) == 0 then
    return {'ok', 0}
  end
end
if not have[9] and not redis.call('HGET', KEYS[2], 'paused') and work_waits(KEYS[2], KEYS[7], KEYS[8]) then
  return {'ok', begin_iteration(KEYS[2], KEYS[1], KEYS[3], KEYS[4], 'follow-up', ARGV[4])}
end
return {'ok', 0}
