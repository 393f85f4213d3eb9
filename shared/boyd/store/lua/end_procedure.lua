-- End a procedure, and with it its execution, if its job is still held by that worker. What started it gets the result.
-- id         of the procedure
-- state      succeeded, failed or cancelled
-- outcome    of the execution: succeeded or failed
-- result     JSON
-- note       for the audit
-- hold_for   ms for which the action is not repeated while its symptoms last, or 0
-- keep       ms that the execution is kept
-- waves      JSON: the ids of the steps with targets
-- Returns 1, or 0 when the job is lost
local job, execution, loop, procedures_stopped, held_actions, in_flight, due, audit_open = unpack(KEYS)
local attempt, worker, id, state, outcome, result, note, hold_for, keep, waves = unpack(ARGV)
-- @include audit executes expect flight_limits hold notices time
if not executes(job, attempt, worker) then
  return 0
end
local have = redis.call('HMGET', job, 'action', 'target', 'state')
if have[3] == 'succeeded' or have[3] == 'failed' or have[3] == 'cancelled' then
  return 1
end
-- Somebody has cancelled it meanwhile: it goes back first.
if state == 'succeeded' and redis.call('HEXISTS', job, 'cancelled') == 1 then
  return 0
end
local origin = key(id)
expect(execution, 'hash', loop, 'hash', procedures_stopped, 'zset', held_actions, 'zset',
  hold_key(have[1], have[2]), 'hash', audit_open, 'stream', origin, 'hash', in_flight, 'hash', due, 'zset')
expect_notice(id)
local known = redis.call('HMGET', execution, 'host', 'worker', 'by', 'symptoms')
audit('action.' .. outcome, 'execution', id, 'action', have[1], 'host', known[1], 'worker', known[2],
  'before', 'running', 'after', outcome, 'note', note, 'who', known[3])
if may_hold(have[1], have[2], id, 0) then
  if hold_for ~= '0' then
    hold(have[1], have[2], {kind = 'no effect', execution = id, evidence = note, symptoms = known[4] or nil}, tonumber(hold_for))
  else
    unhold(have[1], have[2])
  end
end
leave_flight(flight_field(have[1], have[2]), id)
local now = now_ms()
-- The job that has started it has ended; if it has not, it takes the outcome when it does.
if redis.call('HEXISTS', origin, 'result') == 1 then
  redis.call('HINCRBY', origin, 'version', 1)
  redis.call('HSET', origin, 'result', result, 'executionState', outcome, 'executionEndedAt', now, 'updatedAt', now)
end
if redis.call('EXISTS', execution) == 1 then
  redis.call('HSET', execution, 'state', outcome, 'result', result, 'endedAt', now, 'progress', state)
  redis.call('PEXPIRE', execution, keep)
end
wake_notice(id)
for _, step in ipairs(cjson.decode(waves)) do
  for _, kind in ipairs({'wave', 'wave-states', 'wave-targets', 'wave-details'}) do
    redis.call('PEXPIRE', key(kind, id .. ':' .. step), keep)
  end
end
redis.call('HINCRBY', loop, 'procedure:' .. state, 1)
redis.call('ZREM', procedures_stopped, id)
redis.call('HSET', job, 'state', state, 'endedAt', now, 'reason', note)
return 1
