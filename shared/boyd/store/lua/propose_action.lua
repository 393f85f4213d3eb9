-- Queue an action for approval, or find the pending item of the same action and params.
-- id         the same however often one decision is proposed
-- options    ttl (ms until it expires, if it does), keep (ms that history keeps it), summary of the situation,
--            notify (call the notifiers),
--            runs: ids that wait for it, asked_by: principals who asked for it or submitted those runs, wakes: the job
--            that waits for it, each separated by spaces; who: the proposer, for the audit; rationale of the
--            requester, for the item that they join; title of what it does; undoes: the execution that it rolls back;
--            instead_of: JSON, if actions that were decided first are not repeated; agent; class of the situation in whose
--            track record it counts; in_flight: JSON, field and limit, if it is not proposed while so many of it are in
--            flight there; compared: the copy of the freeze marks was compared just now; by: the name of the
--            execution that proposes it; action and target, whose symptoms an iteration means to end
-- fields     field, value, ... to store
-- Returns id of the item, or empty when the call or all the runs that it is for are cancelled, or {'revoked', why},
--          {'unconfirmed'}, {'in-flight', execution}, or {'denied'} since an iteration has decided on it
-- Events  approval.pending, approval.seen
local approval, approvals_pending, approvals_fingerprints, events, due, audit_open, freezes, in_flight, held_actions,
  symptoms = unpack(KEYS)
local id, fingerprint, options = unpack(ARGV, 1, 3)
-- @include audit emit expect flight_limits frozen has_name overdue place_job put_in_order rest symptoms touch
local fields = rest(4)
options = cjson.decode(options)
local have = redis.call('HMGET', approval, 'sameAs', 'status')
if have[1] or have[2] then
  return have[1] or id
end
if not options.compared and not is_confirmed(options.agent) then
  return {'unconfirmed'}
end
-- An action that may not be executed is not proposed; pending items were withdrawn with the right to act.
if revocation_reason(options.agent) then
  return {'revoked', revocation_reason(options.agent)}
end
if string.sub(options.by, 1, 5) == 'call:' and redis.call('HEXISTS', key(options.by), 'cancelled') == 1 then
  return ''
end
local waiting, wanted = {}, options.runs == ''
for run in string.gmatch(options.runs, '%S+') do
  local status = redis.call('HGET', key('run', run), 'status')
  wanted = wanted or status ~= 'cancelled'
  -- One that was forgotten meanwhile would come back as a hash with nothing else in it, for ever.
  if status then
    waiting[#waiting + 1] = key('run', run)
  end
end
if not wanted then
  return ''
end
-- merge(list, more): return both lists as one, each name once.
local function merge(list, more)
  for each in string.gmatch(more, '%S+') do
    if not has_name(list, each) then
      list = (list and list ~= '') and list .. ' ' .. each or each
    end
  end
  return list or ''
end
-- wait_for(item): have the runs wait for that item.
local function wait_for(item)
  for _, run in ipairs(waiting) do
    redis.call('HSET', run, 'approvalId', item)
  end
end
-- join(found): raise `seen` on the pending item of that id, and wait for it.
local function join(found)
  local now = now_ms()
  local item = key('approval', found)
  local known = redis.call('HMGET', item, 'runIds', 'requestedBy', 'wakes', 'agentId')
  redis.call('HINCRBY', item, 'seen', 1)
  redis.call('HSET', item, 'updatedAt', now, 'runIds', merge(known[1], options.runs), 'wakes',
    merge(known[3], options.wakes))
  if options.summary ~= '' then
    redis.call('HSET', item, 'situationSummary', options.summary)
  end
  -- What is proposed in two classes of situations counts in the track record of neither.
  local record = redis.call('HGET', item, 'record')
  if record and options.class and cjson.decode(record).situation ~= options.class then
    redis.call('HDEL', item, 'record')
  end
  if options.instead_of then
    redis.call('HSET', item, 'insteadOf', options.instead_of)
  end
  if options.runs == '' then
    redis.call('HSET', item, 'own', 1)
  end
  -- A run only asks a question: it waits for the item, which somebody else requested.
  if options.runs == '' and options.asked_by ~= '' then
    local before = known[2] ~= '' and known[2] or 'agent:' .. (known[4] or '')
    redis.call('HSET', item, 'requestedBy', merge(before, options.asked_by))
    for principal in string.gmatch(options.asked_by, '%S+') do
      if options.rationale ~= '' then
        redis.call('HSET', item, 'asked:' .. principal, options.rationale, 'askedAt:' .. principal, now)
      end
    end
  end
  wait_for(found)
  emit('approval.seen', 'approval', found, 'title', options.title)
  -- Proposed again by the same execution it is the same item, whatever has become of it; no attempt comes an hour late.
  redis.call('HSET', approval, 'sameAs', found)
  redis.call('PEXPIRE', approval, 3600000)
  return found
end
local found = redis.call('HGET', approvals_fingerprints, fingerprint)
local status = found and redis.call('HGET', key('approval', found), 'status')
local pending = status == 'pending' and redis.call('ZSCORE', approvals_pending, found)
expect(approvals_pending, 'zset', due, 'zset', audit_open, 'stream', symptoms, 'string')
if pending and not overdue(found) then
  return join(found)
end
local other = options.in_flight and in_the_way(options.in_flight, {})
if other then
  return {'in-flight', other}
end
local from_loop = string.sub(options.by, 1, 5) == 'loop:'
if from_loop and read_hold(options.action, options.target, '') == 'denied' then
  return {'denied'}
end
local notice = 'notice:' .. id
expect(key(notice), 'hash')
local past = done_before(options.target)
-- What an attempt has left halfway is no item: it could be neither seen nor answered.
if found and status ~= 'pending' then
  redis.call('ZREM', approvals_pending, found)
  if found ~= id and not status then
    redis.call('DEL', key('approval', found))
  end
end
local now = now_ms()
redis.call('HSET', approval, 'formatVersion', FORMAT, unpack(fields))
redis.call('HSET', approval, 'id', id, 'fingerprint', fingerprint, 'seen', 1, 'version', 1, 'createdAt', now,
  'updatedAt', now, 'runIds', options.runs, 'requestedBy', options.asked_by, 'wakes', options.wakes,
  'title', options.title, 'doneBefore', past)
if options.summary ~= '' then
  redis.call('HSET', approval, 'situationSummary', options.summary)
end
if redis.call('HEXISTS', approval, 'preview') == 1 then
  redis.call('HSET', approval, 'previewAt', now)
end
local cause = from_loop and symptoms_of(options.action, options.target) or ''
if cause ~= '' then
  redis.call('HSET', approval, 'symptomLines', cause)
end
if options.runs == '' then
  -- It does not go away with the runs that may join it.
  redis.call('HSET', approval, 'own', 1)
end
-- Without a deadline it comes after all that have one, in order of creation (`NO_DEADLINE` in store/approvals.py).
local deadline = 4e12 + now
if options.ttl then
  deadline = now + options.ttl
  redis.call('HSET', approval, 'expiresAt', deadline)
  -- The sweeper moves it to history at its deadline. What nobody ever does so with goes with the history that it would
  -- have been in.
  redis.call('PEXPIRE', approval, options.ttl + options.keep)
end
put_in_order(approvals_pending, deadline, id)
redis.call('HSET', approvals_fingerprints, fingerprint, id)
wait_for(id)
audit('approval.pending', 'approval', id, 'action', redis.call('HGET', approval, 'actionId'), 'undoes', options.undoes,
  'digest', fingerprint, 'after', 'pending', 'who', options.who)
if options.notify then
  redis.call('HSET', key(notice), 'id', id, 'stage', 'waiting')
  place_job(notice, 'loop', 0)
end
-- The item comes last: one that fails halfway is proposed again.
redis.call('HSET', approval, 'status', 'pending')
emit('approval.pending', 'approval', id, 'title', options.title)
return id
