-- End the iteration: its record becomes history, its runs end, the agent is free; if work waits, the follow-up starts in
-- the same step, unless this one was to be the last.
-- worker     as it entered, or empty: the sweeper ends what nobody can complete
-- options    success, error, action and summary, for the event; resend_after
-- problems   JSON
-- outline    JSON: what a list tells of the result
-- results    JSON: of its action, or empty: as its act phase has stored them
-- unclaimed_result  JSON: the result of runs that two iterations in a row failed to claim
-- ends       run id, status or empty while it waits, result as JSON, approval id or empty, ...
-- Returns {'ok', number of the follow-up or 0} or {'stale'}
-- Events  iteration.completed, iteration.failed, run.completed, run.failed, run.waiting, iteration.started
local iteration, loop, due, events, history, past, runs_pending, intake, runs, runs_finished, audit_open =
  unpack(KEYS)
local n, epoch, worker, options, retention, problems, outline, results, unclaimed_result = unpack(ARGV, 1, 9)
-- @include begin_iteration expect put_in_order rest settle_run with_step work_waits
local ends = rest(10)
options, retention = cjson.decode(options), cjson.decode(retention)
local have = redis.call('HMGET', iteration, 'iteration', 'epoch', 'phase', 'entered', 'startedAt', 'trigger', 'runs',
  'phaseAt', 'last', 'steps')
if have[1] ~= n or have[2] ~= epoch or have[3] ~= 'complete' or (worker ~= '' and have[4] ~= worker) then
  return {'stale'}
end
-- An iteration that fails before it claims its runs is followed by another; if that fails in the same way, the runs
-- fail with it instead of starting one iteration after the other for ever.
local failed_twice = not options.success and have[6] == 'follow-up' and not have[7]
local unclaimed = failed_twice and redis.call('ZRANGE', runs_pending, 0, 99) or {}
local before, waits, now = read_loop(), work_waits(), now_ms()
local keep_ms, keep_count = unpack(retention.iterations)
local expired = redis.call('ZCOUNT', history, '-inf', now - keep_ms)
expect(due, 'zset')
expect_runs(table.concat(unclaimed, ' '))
for i = 1, #ends, 4 do
  expect_runs(ends[i])
end

for i = 1, #ends, 4 do
  local id, status, result, approval = unpack(ends, i, i + 3)
  local run = key('run', id)
  if status ~= '' then
    settle_run(id, status, 'result', result, 'iteration', n)
  else
    local state = redis.call('HMGET', run, 'status', 'result')
    if state[1] == 'investigating' then
      redis.call('HSET', run, 'approvalId', approval, 'result', result)
      emit('run.waiting', 'run', id, 'approval', approval)
    elseif state[1] == 'failed' and not state[2] then
      -- The approval was denied before the iteration ended; its result is kept.
      settle_run(id, 'failed', 'result', result)
    end
  end
end
local steps = have[4] and with_step(have[10], 'complete', have[8], now, have[5], have[4], '-') or have[10] or ''
redis.call('HSET', iteration, 'success', options.success and 1 or 0, 'endedAt', now, 'problems', problems,
  'ms:complete', now - have[8], 'outline', outline, 'steps', steps)
if options.error ~= '' then
  redis.call('HSET', iteration, 'error', options.error)
end
if results ~= '' then
  redis.call('HSET', iteration, 'results', results)
end
put_in_order(history, now, n)
redis.call('PEXPIRE', iteration, keep_ms)
-- From here on it has ended; if anything fails now, `repair_agent` frees the agent.
redis.call('RENAME', iteration, past)
redis.call('HDEL', past, 'phase', 'entered', 'sentAt', 'phaseAt', 'resends', 'attempts', 'open', 'batches',
  'queue', 'server', 'cancelled', 'unserved', 'executionHandovers', 'abandoned', 'last')
redis.call('HDEL', loop, 'active')
redis.call('HINCRBY', loop, options.success and 'ended:completed' or 'ended:failed', 1)
redis.call('ZREM', due, 'phase')
emit(options.success and 'iteration.completed' or 'iteration.failed', 'iteration', n,
  'ms', now - have[5], 'action', options.action, 'summary', options.summary, 'error', options.error)
local over = math.max(redis.call('ZCARD', history) - keep_count, expired)
if over > 0 then
  for _, old in ipairs(redis.call('ZRANGE', history, 0, math.min(over, 100) - 1)) do
    redis.call('ZREM', history, old)
    redis.call('DEL', key('iteration', old))
  end
end
for _, id in ipairs(unclaimed) do
  -- Those that came since it began have not been failed twice.
  local created = tonumber(redis.call('HGET', key('run', id), 'createdAt') or '')
  if not created then
    redis.call('ZREM', runs_pending, id)
  elseif created < tonumber(have[5]) then
    redis.call('ZREM', runs_pending, id)
    redis.call('HSET', key('run', id), 'status', 'investigating', 'iteration', n)
    settle_run(id, 'failed', 'result', unclaimed_result, 'iteration', n)
  end
end
if failed_twice and redis.call('ZCARD', runs_pending) == 0 then
  return {'ok', 0}
end
if not have[9] and not before.paused and waits then
  return {'ok', begin_iteration('follow-up', options.resend_after)}
end
return {'ok', 0}
