-- Cancel a run that has not ended. Unless it serves other runs, too, or has been started, this also cancels the action of
-- its iteration or of its approval, and withdraws the approval that it waits for.
-- by         the principal
-- request    the same when it is repeated, or empty
-- Returns {'cancelled'}, or {'over', its status or 'unknown'}
-- Events  run.cancelled, approval.withdrawn
local run, runs, runs_pending, runs_finished, iteration, events, due, audit_open, approvals_pending,
  approvals_history, approvals_fingerprints = unpack(KEYS)
local id, reason, by, request, retention = unpack(ARGV, 1, 5)
-- @include expect overdue rest settle_approval stop_investigation
local actor = rest(6)
retention = cjson.decode(retention)
local have = redis.call('HMGET', run, 'status', 'iteration', 'approvalId', 'cancelRequest')
if have[1] == 'cancelled' and request ~= '' and have[4] == request then
  return {'cancelled'}
end
if have[1] ~= 'pending' and have[1] ~= 'investigating' then
  return {'over', have[1] or 'unknown'}
end
local approval_id = have[3] or ''
local approval = key('approval', approval_id)
local current = redis.call('HMGET', iteration, 'iteration', 'runs')
local item = redis.call('HMGET', approval, 'own', 'runIds', 'executionState')
expect(runs_pending, 'zset', key('investigation', id), 'hash')
expect_runs(id)
expect_approval(approval_id)

redis.call('ZREM', runs_pending, id)
redis.call('HSET', run, 'cancelRequest', request)
end_run(id, have[1], 'cancelled', 'reason', reason, unpack(actor))
stop_investigation(id, by)

-- all_cancelled(ids): return true if all of these runs are cancelled or forgotten.
local function all_cancelled(ids)
  for each in string.gmatch(ids or '', '%S+') do
    local status = redis.call('HGET', key('run', each), 'status')
    if status and status ~= 'cancelled' then
      return false
    end
  end
  return true
end
if current[1] and current[1] == have[2] and all_cancelled(current[2]) then
  redis.call('HSET', iteration, 'cancelled', 1)
end
if not item[2] or item[1] or not all_cancelled(item[2]) or overdue(approval_id) then
  return {'cancelled'}
end
if redis.call('ZSCORE', approvals_pending, approval_id) then
  redis.call('HSET', approval, 'note', reason, 'actedBy', by)
  settle_approval(approval_id, 'withdrawn', {}, unpack(actor))
elseif item[3] == 'queued' or item[3] == 'running' then
  redis.call('HSET', approval, 'cancelled', 1)
end
return {'cancelled'}
