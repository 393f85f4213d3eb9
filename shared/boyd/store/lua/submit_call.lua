-- Ask a worker for something on behalf of a client: to execute an action, try it out, undo it, or answer a request.
-- queue      short name, or empty: the usual one
-- keep       ms that the call is kept
-- kind       for the audit, or empty: it changes nothing
-- fields     field, value, ... to store
-- Returns 1, 0 when it was submitted before, or {'refused', why, what is in the way} for a rollback
local call, due, audit_open = unpack(KEYS)
local id, resend_after, queue, keep, kind, actor = unpack(ARGV, 1, 6)
-- @include audit expect place_job rest rollback
local fields = rest(7)
if redis.call('HEXISTS', call, 'executionState') == 1 then
  return 0
end
expect(due, 'zset', audit_open, 'stream')
local undone
if kind == 'rollback' then
  for i = 1, #fields, 2 do
    if fields[i] == 'undoes' then
      undone = fields[i + 1]
    end
  end
  local why, what = rollback_refusal(undone)
  if why then
    return {'refused', why, what}
  end
end
-- The job comes last: a call that fails halfway was not accepted, and is when the client repeats it.
redis.call('HSET', call, 'id', id, 'createdAt', now_ms(), unpack(fields))
redis.call('PEXPIRE', call, keep)
if kind ~= '' then
  local have = redis.call('HMGET', call, 'action', 'undoes', 'rationale')
  audit('call.' .. kind, 'call', id, 'action', have[1], 'undoes', have[2], 'note', have[3],
    unpack(cjson.decode(actor)))
end
if undone then
  redis.call('HSET', key('execution', undone), 'rollbackCall', id)
end
place_job('call:' .. id, queue, resend_after)
return 1
