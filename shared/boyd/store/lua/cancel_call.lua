-- Cancel a call that has not started; from then on it never does. An action has started when the ledger has its claim,
-- anything else when a worker has entered it.
-- approval   the item that the call proposes, if it asks a person
-- result     JSON: of the cancelled call
-- keep       ms that it is kept
-- note       why
-- Returns {'cancelled'}, also when it was cancelled before, {'started'}, {'waits', for which approval}, {'over', its state},
-- or {'unknown'}
-- Events  call.executed
local call, due, events, in_flight, audit_open = unpack(KEYS)
local id, approval, result, keep, note = unpack(ARGV, 1, 5)
-- @include audit emit expect flight_limits rest schedule_job
local actor = rest(6)
local have = redis.call('HMGET', call, 'executionState', 'cancelled', 'kind', 'executionAttempt', 'action', 'undoes',
  'executionTurn', 'executionTurnAt')
local state, kind, turn = have[1], have[3], have[7]
if not state then
  return {'unknown'}
end
if have[2] then
  return {'cancelled'}
end
local proposed = redis.call('HMGET', key('approval', approval), 'sameAs', 'status')
if proposed[1] or proposed[2] then
  return {'waits', proposed[1] or approval}
end
if state ~= 'queued' and state ~= 'running' then
  return {'over', state}
end
local execution = have[6] and 'rollback:' .. have[6] or 'call:' .. id
local acts = kind == 'execute' or kind == 'rollback'
local entered = state == 'running' or have[4] ~= '1'
if redis.call('HEXISTS', key('execution', execution), 'state') == 1 or (entered and not acts) then
  return {'started'}
end
expect(due, 'zset', in_flight, 'hash', audit_open, 'stream')
audit('call.cancelled', 'call', id, 'action', have[5], 'undoes', have[6], 'before', state, 'note', note, unpack(actor))
emit('call.executed', 'call', id, 'state', 'failed')
-- A worker that has entered it is fenced off: its claim is stale, and it proposes nothing.
redis.call('HSET', call, 'cancelled', 1, 'executionState', 'failed', 'executionEndedAt', now_ms(), 'result', result)
redis.call('PEXPIRE', call, keep)
unschedule_job('call:' .. id)
-- Calls queued behind it become due.
if have[8] then
  leave_flight(have[8], turn)
  leave_flight(string.match(have[8], '^[^:]*:[^:]*'), turn)
end
return {'cancelled'}
