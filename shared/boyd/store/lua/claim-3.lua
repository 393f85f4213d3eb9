-- Take the right to execute an action once (L32), unless acting is frozen or the budget is used up (L34).
-- KEYS[1] execution  hash: the ledger's entry
-- KEYS[2] budget     zset: executions of this action on this target, by time
-- KEYS[3] loop       hash: counter, iteration in flight, last slot, paused, frozen
-- ARGV[1] worker
-- ARGV[2] token      proves the claim when finishing
-- ARGV[3] lease      ms until the claim lapses unless renewed
-- ARGV[4] idempotent 1: may run again when its outcome was lost
-- ARGV[5] limit      of the budget, or empty
-- ARGV[6] window     of the budget, ms
-- ARGV[7] keep       ms that the ledger remembers
-- ARGV[8...] field, value, ... to store
-- Returns {'claimed'}, {'frozen', why}, {'over'}, {'done', result}, {'running', worker} or {'unknown', worker}
-- @include common
local frozen = redis.call('HGET', KEYS[3], 'frozen')
local have = redis.call('HMGET', KEYS[1], 'state', 'leaseUntil', 'worker', 'result')
local state, lease_until, worker = have[1], have[2], have[3]
local now = now_ms()
if state == 'succeeded' or state == 'failed' then
  return {'done', have[4]}
end
if state == 'running' and now < tonumber(lease_until) then
  return {'running', worker}
end
if state and ARGV[4] ~= '1' then
  redis.call('HSET', KEYS[1], 'state', 'unknown')
  return {'unknown', worker}
end
if frozen then
  return {'frozen', frozen}
end
if not state and ARGV[5] ~= '' then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[6])
  if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[5]) then
    return {'over'}
  end
  redis.call('ZADD', KEYS[2], now, ARGV[2])
  redis.call('PEXPIRE', KEYS[2], ARGV[6])
end
redis.call('HSET', KEYS[1], 'state', 'running', 'worker', ARGV[1], 'token', ARGV[2], 'startedAt', now,
  'leaseUntil', now + ARGV[3], unpack(ARGV, 8))
redis.call('HINCRBY', KEYS[1], 'attempts', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[7])
return {'claimed'}
