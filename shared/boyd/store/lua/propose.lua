-- Queue an action for approval, or find the pending item of the same action and params (A9).
-- KEYS[1] approval   hash: the new item
-- KEYS[2] pending    zset: pending items by deadline
-- KEYS[3] history    zset: resolved items by time
-- KEYS[4] fingerprints  hash: fingerprint to pending item
-- KEYS[5] events     stream
-- KEYS[6] runs       zset: all runs by creation
-- KEYS[7] finished   zset: finished runs by end
-- KEYS[8] due        zset: what must move on, by deadline
-- KEYS[9] audit      stream: what is not sealed yet
-- ARGV[1] id         the same however often one decision is proposed
-- ARGV[2] fingerprint
-- ARGV[3] ttl        ms until it expires, or empty: never
-- ARGV[4] prefix     of the agent's keys; touches approval:, run:, callback: and notice: hashes, and jobs (same slot)
-- ARGV[5] keep age   of history, ms
-- ARGV[6] keep count of history
-- ARGV[7] keep age   of finished runs, ms
-- ARGV[8] keep count of finished runs
-- ARGV[9] summary    of the situation
-- ARGV[10] runs      ids that wait for it, separated by spaces
-- ARGV[11] asked by  principals who asked for it or submitted those runs, separated by spaces
-- ARGV[12] notify    1: notifiers are to be told
-- ARGV[13] who       proposes, for the audit
-- ARGV[14] wakes     name of the job that waits for it, or empty
-- ARGV[15] rationale  of who asks, for the item that they join, or empty
-- ARGV[16] title      of what it does
-- ARGV[17] undoes     the execution that it rolls back, for the audit, or empty
-- ARGV[18...] field, value, ...
-- Returns id of the item, or empty when all the runs that it is for are cancelled (R4)
-- Events  approval.pending, approval.seen, approval.expired, run.failed
-- @include common
-- @include audit
-- @include list_job
-- @include place_job
-- @include names
-- @include settle_run
-- @include wake
-- @include settle_approval
local same = redis.call('HGET', KEYS[1], 'sameAs')
if same or redis.call('HEXISTS', KEYS[1], 'status') == 1 then
  return same or ARGV[1]
end
local wanted = ARGV[10] == ''
for run in string.gmatch(ARGV[10], '%S+') do
  wanted = wanted or redis.call('HGET', ARGV[4] .. 'run:' .. run, 'status') ~= 'cancelled'
end
if not wanted then
  return ''
end
-- joined(list, more): both lists as one, each name once.
local function joined(list, more)
  for each in string.gmatch(more, '%S+') do
    if not names(list, each) then
      list = (list and list ~= '') and list .. ' ' .. each or each
    end
  end
  return list or ''
end
local function wait_with(id)
  for run in string.gmatch(ARGV[10], '%S+') do
    -- One that was forgotten meanwhile would come back as a hash with nothing else in it, for ever.
    if redis.call('EXISTS', ARGV[4] .. 'run:' .. run) == 1 then
      redis.call('HSET', ARGV[4] .. 'run:' .. run, 'approvalId', id)
    end
  end
end
local now = now_ms()
local found = redis.call('HGET', KEYS[4], ARGV[2])
-- What an attempt has left halfway is no item: nobody could see or answer it.
if found and redis.call('HGET', ARGV[4] .. 'approval:' .. found, 'status') ~= 'pending' then
  redis.call('ZREM', KEYS[2], found)
  if found ~= ARGV[1] and redis.call('HEXISTS', ARGV[4] .. 'approval:' .. found, 'status') == 0 then
    redis.call('DEL', ARGV[4] .. 'approval:' .. found)
  end
  found = nil
end
local deadline = found and redis.call('ZSCORE', KEYS[2], found)
if deadline and now < tonumber(deadline) then
  local item = ARGV[4] .. 'approval:' .. found
  local have = redis.call('HMGET', item, 'runIds', 'requestedBy', 'wakes', 'agentId')
  redis.call('HINCRBY', item, 'seen', 1)
  redis.call('HSET', item, 'updatedAt', now, 'runIds', joined(have[1], ARGV[10]), 'wakes', joined(have[3], ARGV[14]))
  if ARGV[9] ~= '' then
    redis.call('HSET', item, 'situationSummary', ARGV[9])
  end
  if ARGV[10] == '' then
    redis.call('HSET', item, 'own', 1)
  end
  -- Who submits a run asks a question: it waits for the item, which somebody else has asked for.
  if ARGV[10] == '' and ARGV[11] ~= '' then
    local before = have[2] ~= '' and have[2] or 'agent:' .. (have[4] or '')
    redis.call('HSET', item, 'requestedBy', joined(before, ARGV[11]))
    for who in string.gmatch(ARGV[11], '%S+') do
      if ARGV[15] ~= '' then
        redis.call('HSET', item, 'asked:' .. who, ARGV[15], 'askedAt:' .. who, now)
      end
    end
  end
  wait_with(found)
  emit(KEYS[5], 'approval.seen', 'approval', found, 'title', ARGV[16])
  -- Proposed again by the same execution it is the same item, whatever has become of it; no attempt comes an hour late.
  redis.call('HSET', KEYS[1], 'sameAs', found)
  redis.call('PEXPIRE', KEYS[1], 3600000)
  return found
end
if deadline then
  settle_approval({KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[5], tonumber(ARGV[6])},
    {ARGV[4], KEYS[6], KEYS[7], KEYS[8], KEYS[9], ARGV[7], tonumber(ARGV[8])}, found, 'expired', 'who', 'clock')
end
redis.call('HSET', KEYS[1], unpack(ARGV, 18))
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'fingerprint', ARGV[2], 'seen', 1, 'version', 1,
  'createdAt', now, 'updatedAt', now, 'runIds', ARGV[10], 'requestedBy', ARGV[11], 'wakes', ARGV[14], 'title', ARGV[16])
if ARGV[9] ~= '' then
  redis.call('HSET', KEYS[1], 'situationSummary', ARGV[9])
end
if redis.call('HEXISTS', KEYS[1], 'preview') == 1 then
  redis.call('HSET', KEYS[1], 'previewAt', now)
end
if ARGV[10] == '' then
  -- It does not go away with the runs that may join it.
  redis.call('HSET', KEYS[1], 'own', 1)
end
deadline = '+inf'
if ARGV[3] ~= '' then
  deadline = now + ARGV[3]
  redis.call('HSET', KEYS[1], 'expiresAt', deadline)
end
redis.call('ZADD', KEYS[2], deadline, ARGV[1])
redis.call('HSET', KEYS[4], ARGV[2], ARGV[1])
wait_with(ARGV[1])
audit(KEYS[9], 'approval.pending', 'approval', ARGV[1], 'action', redis.call('HGET', KEYS[1], 'actionId'), 'undoes', ARGV[17],
  'digest', ARGV[2], 'after', 'pending', 'who', ARGV[13])
if ARGV[12] == '1' then
  local notice = ARGV[4] .. 'notice:' .. ARGV[1]
  redis.call('HSET', notice, 'id', ARGV[1], 'stage', 'created')
  place_job(notice, KEYS[8], 'notice:' .. ARGV[1], 'loop', 0)
end
-- The item itself last: what fails halfway is proposed again.
redis.call('HSET', KEYS[1], 'status', 'pending')
emit(KEYS[5], 'approval.pending', 'approval', ARGV[1], 'title', ARGV[16])
return ARGV[1]
