-- Let a procedure that was stopped go on. The time in which it was stopped does not count.
-- how        `repeat`: the step or compensation is executed again; `go on`: it counts as done
-- note       why
-- Returns 'ok', 'not stopped' or 'unknown'
-- Events  procedure.changed
local job, procedures_stopped, due, events, audit_open = unpack(KEYS)
local id, how, note = unpack(ARGV, 1, 3)
-- @include audit emit expect rest server wake
local actor = rest(4)
local have = redis.call('HMGET', job, 'state', 'stoppedAt', 'until', 'action', 'back', 'cause', 'reason')
if not have[1] then
  return 'unknown'
end
if have[1] ~= 'stopped' then
  return 'not stopped'
end
expect(procedures_stopped, 'zset', due, 'zset', audit_open, 'stream')
local now, following = now_ms(), have[5] and 'compensating' or 'running'
audit('procedure.resumed', 'execution', id, 'action', have[4], 'before', 'stopped', 'after', following, 'note', note,
  unpack(actor))
-- What has stopped it does so no longer; what it goes back for stays.
-- A person takes responsibility for what Redis may have forgotten in a restart.
redis.call('HSET', job, 'state', following, 'until', have[3] + now - (have[2] or now), 'resumed', how,
  'server', server_id(), 'reason', have[5] and (have[6] or have[7]) or '')
redis.call('HDEL', job, 'stoppedAt', 'tell')
redis.call('ZREM', procedures_stopped, id)
wake('procedure:' .. id)
emit('procedure.changed', 'procedure', id, 'progress', following)
return 'ok'
