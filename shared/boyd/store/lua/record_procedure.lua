-- Record a change of a procedure, if its job is still held by that worker.
-- id         of the procedure
-- kind       for the audit and the totals, as `stopped` or `compensating`; or empty
-- note       for the audit
-- progress   in one line
-- fields     to store, by name; an empty value takes the field away
-- Returns 1, or 0 when the job is lost
-- Events  procedure.changed
local job, execution, loop, procedures_stopped, events, audit_open = unpack(KEYS)
local attempt, worker, id, kind, note, progress, fields = unpack(ARGV)
-- @include audit emit executes expect time
if not executes(job, attempt, worker) then
  return 0
end
expect(execution, 'hash', loop, 'hash', procedures_stopped, 'zset', audit_open, 'stream')
if kind ~= '' then
  audit('procedure.' .. kind, 'execution', id, 'action', redis.call('HGET', job, 'action'), 'after', kind, 'note', note)
  redis.call('HINCRBY', loop, 'procedure:' .. kind, 1)
end
fields = cjson.decode(fields)
for field, value in pairs(fields) do
  if value == '' then
    redis.call('HDEL', job, field)
  else
    redis.call('HSET', job, field, value)
  end
end
if fields.state == 'stopped' then
  redis.call('ZADD', procedures_stopped, now_ms(), id)
elseif fields.state then
  redis.call('ZREM', procedures_stopped, id)
end
if redis.call('EXISTS', execution) == 1 then
  redis.call('HSET', execution, 'progress', progress)
end
emit('procedure.changed', 'procedure', id, 'progress', progress)
return 1
