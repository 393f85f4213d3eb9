-- Resolve a pending item: exactly one of approve, deny, expire, withdraw wins, whoever races (A3). An approval counts
-- once for each principal; the one that completes the number needed resolves the item (A11).
-- KEYS[1] approval   hash: the item
-- KEYS[2] pending    zset: pending items by deadline
-- KEYS[3] history    zset: resolved items by time
-- KEYS[4] fingerprints  hash: fingerprint to pending item
-- KEYS[5] events     stream
-- KEYS[6] runs       zset: all runs by creation
-- KEYS[7] finished   zset: finished runs by end
-- KEYS[8] due        zset: what must move on, by deadline
-- KEYS[9] audit      stream: what is not sealed yet
-- ARGV[1] id
-- ARGV[2] status     approved, denied or withdrawn
-- ARGV[3] prefix     of the agent's keys; touches approval:, run: and callback: hashes (same slot)
-- ARGV[4] keep age   of history, ms
-- ARGV[5] keep count of history
-- ARGV[6] keep age   of finished runs, ms
-- ARGV[7] keep count of finished runs
-- ARGV[8] resend_after   ms a message may take to reach a worker
-- ARGV[9] version    that the item must have, or empty
-- ARGV[10] principal who resolves
-- ARGV[11] needed    how many approvals it takes
-- ARGV[12] own       1: who asked for it may approve it
-- ARGV[13] vote      JSON, for an approval
-- ARGV[14] request   the same when it is repeated, or empty
-- ARGV[15] updates   how many of the following arguments are field, value, ... to store
-- ARGV[16...] updates, then field, value, ... of the actor for the audit
-- Returns {'resolved'|'counted'|'voted'|'requester'|'changed'}, or {'over'|'again', what the item is now: its status or
--         'unknown'}
-- Events  approval.approved, approval.denied, approval.withdrawn, approval.expired, approval.vote, run.completed, run.failed
-- @include common
-- @include audit
-- @include list_job
-- @include place_job
-- @include names
-- @include settle_run
-- @include wake
-- @include settle_approval
local request = 'request:' .. ARGV[10]
if ARGV[14] ~= '' and redis.call('HGET', KEYS[1], request) == ARGV[14] then
  return {'again', redis.call('HGET', KEYS[1], 'status')}
end
local deadline = redis.call('ZSCORE', KEYS[2], ARGV[1])
local status = redis.call('HGET', KEYS[1], 'status')
if not deadline or status ~= 'pending' then
  return {'over', status or 'unknown'}
end
local approvals = {KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[4], tonumber(ARGV[5])}
local runs = {ARGV[3], KEYS[6], KEYS[7], KEYS[8], KEYS[9], ARGV[6], tonumber(ARGV[7])}
local now = now_ms()
if now >= tonumber(deadline) then
  settle_approval(approvals, runs, ARGV[1], 'expired', 'who', 'clock')
  return {'over', 'expired'}
end
local have = redis.call('HMGET', KEYS[1], 'version', 'requestedBy', 'queue', 'actionId', 'fingerprint', 'title', 'undoes',
  'executionState', 'votes')
if ARGV[9] ~= '' and have[1] ~= ARGV[9] then
  return {'changed'}
end
local actor = 16 + ARGV[15]
local fields = {request, ARGV[14]}
local function store(...)
  for _, each in ipairs({...}) do
    fields[#fields + 1] = each
  end
end
if ARGV[2] == 'approved' then
  if ARGV[12] ~= '1' and names(have[2], ARGV[10]) then
    return {'requester'}
  end
  if redis.call('HEXISTS', KEYS[1], 'vote:' .. ARGV[10]) == 1 then
    return {'voted'}
  end
  local votes = (have[9] or 0) + 1
  store('vote:' .. ARGV[10], ARGV[13], 'votedAt:' .. ARGV[10], now, 'votes', votes)
  if votes < tonumber(ARGV[11]) then
    local note
    for i = 16, actor - 1, 2 do
      note = ARGV[i] == 'note' and ARGV[i + 1] or note
    end
    audit(KEYS[9], 'approval.vote', 'approval', ARGV[1], 'action', have[4], 'undoes', have[7], 'digest', have[5], 'before',
      'pending', 'after', 'pending', 'note', note, unpack(ARGV, actor))
    redis.call('HSET', KEYS[1], 'updatedAt', now, unpack(fields))
    redis.call('HINCRBY', KEYS[1], 'version', 1)
    emit(KEYS[5], 'approval.vote', 'approval', ARGV[1], 'title', have[6] or have[4] or '', 'by', ARGV[10])
    return {'counted'}
  end
end
store(unpack(ARGV, 16, actor - 1))
local done = have[8]
for i = 16, actor - 1, 2 do
  done = ARGV[i] == 'executionState' and ARGV[i + 1] or done
end
if ARGV[2] == 'approved' and not done then
  -- An approval is also the job to execute: from here on it does not depend on whoever gave it (A4, A6). If nothing
  -- comes of it, the sweeper finds no job of that name and drops it.
  list_job(KEYS[1], KEYS[8], 'approval:' .. ARGV[1], now + ARGV[8])
  store('executionState', 'queued', 'executionAttempt', 1, 'executionResends', 0, 'queuedAt', now, 'server', server_id())
  if (have[3] or '') ~= '' then
    store('queue', have[3])
  end
end
approvals[7] = fields
settle_approval(approvals, runs, ARGV[1], ARGV[2], unpack(ARGV, actor))
if done then
  -- Who approves has executed it and says how that ended.
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  wake(ARGV[3], KEYS[8], redis.call('HGET', KEYS[1], 'wakes'))
  for run in string.gmatch(redis.call('HGET', KEYS[1], 'runIds') or '', '%S+') do
    settle_run(runs, KEYS[5], run, done == 'succeeded' and 'completed' or 'failed', 'reason',
      'the action was executed by who approved it', 'approval', ARGV[1])
  end
end
return {'resolved'}
