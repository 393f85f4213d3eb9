-- Resolve a pending item: exactly one of approve, deny, expire, withdraw wins a race. An approval counts once for
-- each principal; the one that completes the number needed resolves the item.
-- verdict    approved, denied or withdrawn
-- principal  of the answer
-- options    version that the item must have, if any; needed: how many approvals it takes; own: requesters may
--            approve it; vote: JSON, for an approval; request: the same when it is repeated, or empty; note;
--            done: how its execution ended, if the principal has executed it; actor; resend_after; link_until: the
--            deadline (ms) of the signed link that the principal uses, if any; agent; compared: the copy of the freeze
--            marks was compared just now; hold_for: ms for which a denial holds the action on its target, at most
-- fields     field, value, ... to store
-- What the loop has asked for because of symptoms, and is denied, is not asked for again while they last.
-- Returns {an `ApprovalOutcome`}, {'frozen', why}, {'revoked', why}, {'unconfirmed'}, or {'newer', format version}
-- Events  approval.approved, approval.denied, approval.withdrawn, approval.vote, run.completed, run.failed
local approval, approvals_pending, approvals_history, approvals_fingerprints, events, runs, runs_finished, due,
  audit_open, in_flight, freezes, held_actions = unpack(KEYS)
local id, verdict, principal, options, retention = unpack(ARGV, 1, 5)
-- @include expect flight_limits frozen has_name hold overdue rest settle_approval
local fields = rest(6)
options, retention = cjson.decode(options), cjson.decode(retention)
local request = 'request:' .. principal
local have = redis.call('HMGET', approval, 'version', 'requestedBy', 'queue', 'actionId', 'fingerprint', 'title', 'undoes',
  'executionState', 'votes', 'status', request, 'wakes', 'runIds', 'formatVersion', 'vote:' .. principal,
  'target', 'concurrency', 'symptomLines')
local status = have[10]
if options.request ~= '' and have[11] == options.request then
  return {status == verdict and verdict or 'counted'}
end
if status ~= 'pending' or not redis.call('ZSCORE', approvals_pending, id) then
  return {'not-pending'}
end
if overdue(id) then
  return {'not-pending'}
end
if newer(have[14]) then
  return {'newer', newer(have[14])}
end
if options.version and have[1] ~= options.version then
  return {'changed'}
end
local now = now_ms()
if options.link_until and now >= options.link_until then
  return {'link-refused'}
end
fields[#fields + 1] = request
fields[#fields + 1] = options.request
local function set(...)
  for _, each in ipairs({...}) do
    fields[#fields + 1] = each
  end
end
if verdict == 'approved' and not options.done then
  -- What is approved now would only fail, and be used up.
  if not options.compared and not is_confirmed(options.agent) then
    return {'unconfirmed'}
  end
  if revocation_reason(options.agent) then
    return {'revoked', revocation_reason(options.agent)}
  end
  if freeze_reason(options.agent) then
    return {'frozen', freeze_reason(options.agent)}
  end
end
if verdict == 'approved' then
  if not options.own and has_name(have[2], principal) then
    return {'requester'}
  end
  if have[15] then
    return {'already-approved'}
  end
  local votes = (have[9] or 0) + 1
  expect(audit_open, 'stream')
  local vote = {'vote:' .. principal, options.vote, 'votedAt:' .. principal, now, 'votes', votes}
  if votes < options.needed then
    audit('approval.vote', 'approval', id, 'action', have[4], 'undoes', have[7], 'digest', have[5], 'before', 'pending',
      'after', 'pending', 'note', options.note, unpack(options.actor))
    redis.call('HSET', approval, 'updatedAt', now, request, options.request, unpack(vote))
    redis.call('HINCRBY', approval, 'version', 1)
    emit('approval.vote', 'approval', id, 'title', have[6] or have[4] or '', 'by', principal)
    return {'counted'}
  end
  set(unpack(vote))
end
local done = options.done or have[8]
expect_approval(id)
expect(in_flight, 'hash')
local held, past, symptoms = hold_key(have[4], have[16] or ''), past_key(have[4], have[16] or ''), have[18]
expect(held_actions, 'zset', held, 'hash', past, 'string')
-- A hold after harm or without effect stays as it is.
if verdict == 'denied' and symptoms and redis.call('EXISTS', held) == 0 then
  local lasting = with_past(past, symptoms)
  hold(have[4], have[16] or '', {kind = 'denied', execution = 'approval:' .. id, symptoms = lasting, by = principal,
    evidence = options.note ~= '' and options.note or nil}, options.hold_for)
end
if verdict == 'approved' and not done then
  -- An approval is also the order to execute: from here on it does not depend on the approver. If nothing comes of
  -- it, the sweeper finds no job of that name and drops it.
  schedule_job('approval:' .. id, now + options.resend_after)
  if have[16] and tonumber(have[17]) and not have[7] then
    local name = 'approval:' .. id
    enter_flight(flight_field(have[4], have[16]), tonumber(have[17]), name, name)
    set('executionTurn', name)
  end
  set('executionState', 'queued', 'executionAttempt', 1, 'executionResends', 0, 'queuedAt', now, 'server', server_id())
  if (have[3] or '') ~= '' then
    set('queue', have[3])
  end
end
settle_approval(id, verdict, fields, unpack(options.actor))
if done then
  -- The approver has executed it and reports the outcome.
  redis.call('PEXPIRE', approval, retention.items[1])
  wake(have[12])
  for run in string.gmatch(have[13] or '', '%S+') do
    settle_run(run, done == 'succeeded' and 'completed' or 'failed', 'reason',
      'the action was executed by who approved it', 'approval', id)
  end
end
return {verdict}
