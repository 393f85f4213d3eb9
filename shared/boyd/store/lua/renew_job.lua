-- Renew the lease of a job, or give it back until later.
-- name       its kind and id
-- attempt    its fencing token
-- worker     as it entered
-- wait       ms until it is due
-- give_back  1: it cannot be worked on before then; 2: it can, and its message is sent now
-- fields     field, value, ... to store
-- Returns the attempt, another one when it is given back, or 0 when the lease is lost
local job, due = unpack(KEYS)
local name, attempt, worker, wait, give_back = unpack(ARGV, 1, 5)
-- @include executes expect put_off rest time
local fields = rest(6)
if not executes(job, attempt, worker) then
  return 0
end
expect(due, 'zset')
local now = now_ms()
local at, waits = now + wait, give_back == '1'
if give_back ~= '0' then
  -- Under a new attempt, so that a late copy of a message does not enter it, on whatever queue that lies.
  attempt = redis.call('HINCRBY', job, 'executionAttempt', 1)
  -- Attempts lost before count no more, as the job has made progress. Its wait may have ended meanwhile.
  redis.call('HSET', job, 'executionState', 'queued', 'queuedAt', now, 'executionResends', 0,
    'executionBase', attempt - 1)
  local woken = redis.call('HDEL', job, 'executionWoken') == 1
  redis.call('HDEL', job, 'executionStartedAt', 'executionBy', 'executionHandovers')
  if waits and woken then
    at, waits = now, false
  end
end
store(job, fields)
if waits then
  put_off(name, wait)
else
  redis.call('ZADD', due, at, name)
end
return tonumber(attempt)
