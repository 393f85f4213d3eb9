-- Cancel a run that has not ended (R2, R4). What was to be done only for cancelled runs is not done any more: the
-- action of its iteration or its approval, unless it has been started, and the approval that it waits for.
-- KEYS[1] run        hash
-- KEYS[2] runs       zset: all runs by creation
-- KEYS[3] waiting    zset: pending runs by urgency
-- KEYS[4] finished   zset: finished runs by end
-- KEYS[5] iteration  hash: the iteration in flight
-- KEYS[6] events     stream
-- KEYS[7] due        zset: what must move on, by deadline
-- KEYS[8] audit      stream: what is not sealed yet
-- KEYS[9] pending    zset: pending items by deadline
-- KEYS[10] history   zset: resolved items by time
-- KEYS[11] fingerprints  hash: fingerprint to pending item
-- ARGV[1] id
-- ARGV[2] prefix     of the agent's keys; touches approval:, run: and callback: hashes, and jobs (same slot)
-- ARGV[3] keep age   of finished runs, ms
-- ARGV[4] keep count of finished runs
-- ARGV[5] keep age   of resolved items, ms
-- ARGV[6] keep count of resolved items
-- ARGV[7] reason
-- ARGV[8] principal  who cancels
-- ARGV[9] request    the same when it is repeated, or empty
-- ARGV[10...] field, value, ... of the actor for the audit
-- Returns {'cancelled'}, or {'over', its status or 'unknown'}
-- Events  run.cancelled, approval.withdrawn, approval.expired
-- @include common
-- @include audit
-- @include list_job
-- @include place_job
-- @include settle_run
-- @include wake
-- @include settle_approval
-- @include cancel_investigation
local have = redis.call('HMGET', KEYS[1], 'status', 'iteration', 'approvalId')
if have[1] == 'cancelled' and ARGV[9] ~= '' and redis.call('HGET', KEYS[1], 'cancelRequest') == ARGV[9] then
  return {'cancelled'}
end
if have[1] ~= 'pending' and have[1] ~= 'investigating' then
  return {'over', have[1] or 'unknown'}
end
local runs = {ARGV[2], KEYS[2], KEYS[4], KEYS[7], KEYS[8], ARGV[3], tonumber(ARGV[4])}
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HSET', KEYS[1], 'cancelRequest', ARGV[9])
end_run(runs, KEYS[6], ARGV[1], have[1], 'cancelled', 'reason', ARGV[7], unpack(ARGV, 10))
cancel_investigation(ARGV[2], KEYS[7], ARGV[1], ARGV[8])

-- all_cancelled(ids): whether nobody waits for any of these runs any more.
local function all_cancelled(ids)
  for id in string.gmatch(ids or '', '%S+') do
    local status = redis.call('HGET', ARGV[2] .. 'run:' .. id, 'status')
    if status and status ~= 'cancelled' then
      return false
    end
  end
  return true
end
local current = redis.call('HMGET', KEYS[5], 'iteration', 'runs')
if current[1] and current[1] == have[2] and all_cancelled(current[2]) then
  redis.call('HSET', KEYS[5], 'cancelled', 1)
end
local key = ARGV[2] .. 'approval:' .. (have[3] or '')
local item = redis.call('HMGET', key, 'own', 'runIds', 'executionState')
if not item[2] or item[1] or not all_cancelled(item[2]) then
  return {'cancelled'}
end
local deadline = redis.call('ZSCORE', KEYS[9], have[3])
if deadline then
  local approvals = {KEYS[9], KEYS[10], KEYS[11], KEYS[6], ARGV[5], tonumber(ARGV[6])}
  if now_ms() >= tonumber(deadline) then
    settle_approval(approvals, runs, have[3], 'expired', 'who', 'clock')
  else
    redis.call('HSET', key, 'note', ARGV[7], 'actedBy', ARGV[8])
    settle_approval(approvals, runs, have[3], 'withdrawn', unpack(ARGV, 10))
  end
elseif item[3] == 'queued' or item[3] == 'running' then
  redis.call('HSET', key, 'cancelled', 1)
end
return {'cancelled'}
