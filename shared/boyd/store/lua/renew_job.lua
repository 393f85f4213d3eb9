-- Renew the lease of a job, or give it back until later.
-- KEYS[1] job      hash
-- KEYS[2] due        zset: what must move on, by deadline
-- ARGV[1] name
-- ARGV[2] attempt    its fencing token
-- ARGV[3] worker     as it entered
-- ARGV[4] wait       ms until it is due
-- ARGV[5] give back  1: it cannot be worked on before then; 2: it can, and its message is sent now
-- ARGV[6...] field, value, ... to store
-- Returns the attempt, another one when it is given back, or 0 when the lease is lost
-- @include common
-- @include executes
if not executes(KEYS[1], ARGV[2], ARGV[3]) then
  return 0
end
local now = now_ms()
local at = now + ARGV[4]
local attempt = ARGV[2]
if ARGV[5] ~= '0' then
  -- Under a new attempt, so that a late copy of a message does not enter it, on whatever queue that lies.
  attempt = redis.call('HINCRBY', KEYS[1], 'executionAttempt', 1)
  -- What was lost before counts no more: it has got on. What has been waited for may have come meanwhile.
  redis.call('HSET', KEYS[1], 'executionState', 'queued', 'queuedAt', now, 'executionResends', 0,
    'executionBase', attempt - 1)
  local woken = redis.call('HDEL', KEYS[1], 'executionWoken') == 1
  redis.call('HDEL', KEYS[1], 'executionStartedAt', 'executionBy')
  if ARGV[5] == '1' then
    at = woken and now or at
    redis.call('HSET', KEYS[1], 'queuedAt', at, 'executionNotBefore', at)
  end
end
if #ARGV > 5 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 6))
end
-- No deadline is ten minutes ahead: sweepers take what is for a sign that the clock has stepped back.
redis.call('ZADD', KEYS[2], math.min(at, now + 540000), ARGV[1])
return tonumber(attempt)
