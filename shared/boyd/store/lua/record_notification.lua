-- Store on its approval what became of a notification so far, if its job is still held by that worker.
-- id         of the approval
-- name       of the notification
-- record     JSON
-- stage      of the approval
-- ended      succeeded, failed or skipped; empty: it goes on
-- Returns 1, or 0 when the job is lost or the approval is no longer kept
-- Events  approval.notified
local job, approval, loop, events = unpack(KEYS)
local attempt, worker, id, name, record, stage, ended = unpack(ARGV)
-- @include emit executes expect
if not executes(job, attempt, worker) or redis.call('HEXISTS', approval, 'status') == 0 then
  return 0
end
expect(loop, 'hash')
redis.call('HSET', approval, 'notified:' .. name, record)
if ended ~= '' then
  redis.call('HINCRBY', loop, 'notified:' .. ended, 1)
  emit('approval.notified', 'approval', id, 'stage', stage, 'state', ended)
end
return 1
