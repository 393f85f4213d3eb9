-- Take the right to execute an action once (L32), unless acting is frozen or the budget is used up (L34).
-- KEYS[1] execution  hash: the ledger's entry
-- KEYS[2] budget     zset: executions of this action on this target, by time
-- KEYS[3] freezes    hash: agent id, or * for all, to its mark; + while nothing of it was lost
-- KEYS[4] origin     hash: the iteration in flight, or the job
-- KEYS[5] audit      stream: what is not sealed yet
-- KEYS[6] registered hash: agent id to when it was registered. An agent that is missing has to wait, and so has everybody
--                    without the field + of freezes: Redis has lost data, which the next heartbeat brings back
-- KEYS[7] executions zset: the ledger's entries by when they were claimed
-- ARGV[1] worker
-- ARGV[2] token      proves the claim when finishing
-- ARGV[3] lease      ms until the claim lapses unless renewed
-- ARGV[4] idempotent 1: may run again when its outcome was lost
-- ARGV[5] limit      of the budget, or empty
-- ARGV[6] window     of the budget, ms
-- ARGV[7] keep       ms that the ledger remembers
-- ARGV[8] n          of the iteration that acts, or 'job', or empty: nothing stands behind it
-- ARGV[9] epoch      of its act phase, or attempt of the job
-- ARGV[10] entered   as the worker entered it
-- ARGV[11] agent     its id
-- ARGV[12...] field, value, ... to store
-- Returns {'claimed'}, {'stale'}, {'cancelled'}, {'frozen', why}, {'unregistered'}, {'over'}, {'done', result}, {'running', worker, ms until it lapses}
--         or {'unknown', why}
-- @include common
-- @include audit
-- @include lose_claim
-- @include holds
-- @include frozen
-- @include executes
-- list(now): put the entry among those that can be looked for, and forget what the ledger has forgotten.
-- No action waits for it.
local function list(now)
  redis.pcall('ZADD', KEYS[7], now, redis.call('HGET', KEYS[1], 'id'))
  redis.pcall('ZREMRANGEBYSCORE', KEYS[7], '-inf', now - ARGV[7])
  redis.pcall('PEXPIRE', KEYS[7], ARGV[7])
end
-- given(name): the field of that name among those to store.
local function given(name)
  for i = 12, #ARGV, 2 do
    if ARGV[i] == name then
      return ARGV[i + 1]
    end
  end
end
if ARGV[8] == 'job' then
  if not executes(KEYS[4], ARGV[9], ARGV[10]) then
    return {'stale'}
  end
elseif ARGV[8] ~= '' and not holds(KEYS[4], ARGV[8], ARGV[9], 'act', ARGV[10]) then
  return {'stale'}
end
local have = redis.call('HMGET', KEYS[1], 'state', 'leaseUntil', 'worker', 'result', 'token')
local state, lease_until, worker = have[1], have[2], have[3]
local now = now_ms()
if state == 'succeeded' or state == 'failed' then
  return {'done', have[4]}
end
if state == 'running' and have[5] == ARGV[2] then
  return {'claimed'}
end
if state == 'running' and now < tonumber(lease_until) then
  return {'running', worker, lease_until - now}
end
local cancelled = ARGV[8] ~= '' and redis.call('HGET', KEYS[4], 'cancelled')
local freeze = frozen(KEYS[3], ARGV[11])
local known = redis.call('HEXISTS', KEYS[6], ARGV[11]) == 1 and redis.call('HEXISTS', KEYS[3], '+') == 1
-- What was started before and may not run again now is not told as if it had never been started.
if state and (ARGV[4] ~= '1' or cancelled or freeze) then
  local why = 'worker ' .. worker .. ' stopped while executing it'
  if state == 'running' then
    lose_claim(KEYS[1], KEYS[5], why)
  end
  return {'unknown', redis.call('HGET', KEYS[1], 'lost') or why}
end
if cancelled then
  return {'cancelled'}
end
if freeze then
  return {'frozen', freeze}
end
if not known then
  return {'unregistered'}
end
-- After a restart the ledger may have forgotten a claim of this very iteration or item.
if ARGV[8] ~= '' and not state and ARGV[4] ~= '1' and redis.call('HGET', KEYS[4], 'server') ~= server_id() then
  local why = 'Redis restarted and may have forgotten that it was executed; it was not executed again'
  redis.call('HSET', KEYS[1], 'worker', ARGV[1], unpack(ARGV, 12))
  redis.call('PEXPIRE', KEYS[1], ARGV[7])
  list(now)
  lose_claim(KEYS[1], KEYS[5], why)
  return {'unknown', why}
end
if not state and ARGV[5] ~= '' then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[6])
  if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[5]) then
    return {'over'}
  end
  redis.call('ZADD', KEYS[2], now, ARGV[2])
  redis.call('PEXPIRE', KEYS[2], ARGV[6])
end
redis.call('HINCRBY', KEYS[1], 'attempts', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[7])
audit(KEYS[5], 'action.started', 'execution', given('id'), 'action', given('action'), 'host', given('host'), 'worker', ARGV[1],
  'who', given('by'))
if ARGV[8] == 'job' then
  redis.call('HSET', KEYS[4], 'executionClaimedAt', now, 'executionClaimedBy', ARGV[1])
end
-- The claim itself last: what fails halfway has not begun.
redis.call('HSET', KEYS[1], 'state', 'running', 'worker', ARGV[1], 'token', ARGV[2], 'startedAt', now,
  'leaseUntil', now + ARGV[3], unpack(ARGV, 12))
list(now)
return {'claimed'}
