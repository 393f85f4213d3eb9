-- Cancel a procedure: no further step is started, and its worker undoes the steps that took effect. What could not be
-- undone before is left as it is.
-- by         the principal
-- note       why
-- Returns 'ok', also when it was cancelled before and has not ended, 'over' or 'unknown'
-- Events  procedure.changed
local job, procedures_stopped, due, events, audit_open = unpack(KEYS)
local id, by, note = unpack(ARGV, 1, 3)
-- @include audit emit expect rest wake waves
local actor = rest(4)
local have = redis.call('HMGET', job, 'state', 'cancelledBy', 'action', 'wave')
if not have[1] then
  return 'unknown'
end
if have[1] == 'succeeded' or have[1] == 'failed' or have[1] == 'cancelled' then
  return 'over'
end
-- Another cancellation gives up a procedure that was stopped while it compensated.
if have[2] and have[1] ~= 'stopped' then
  return 'ok'
end
expect(procedures_stopped, 'zset', due, 'zset', audit_open, 'stream')
if have[4] then
  expect_wave(id .. ':' .. have[4])
end
audit('procedure.cancelled', 'execution', id, 'action', have[3], 'before', have[1], 'note', note, unpack(actor))
-- A claim of the current step is refused from now on, also when a person approves it. Any worker can cancel it: its queue may have none.
redis.call('HSET', job, 'cancelled', 1, 'cancelledBy', by, 'queue', 'act')
redis.call('ZREM', procedures_stopped, id)
if have[4] and redis.call('HGET', key('wave', id .. ':' .. have[4]), 'mode') == 'forth' then
  halt_wave(id .. ':' .. have[4], 'cancelled')
end
wake('procedure:' .. id)
emit('procedure.changed', 'procedure', id, 'progress', 'cancelled')
return 'ok'
