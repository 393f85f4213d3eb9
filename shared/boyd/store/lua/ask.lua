-- Begin an investigation, or find it: the same id is the same one, however often it is asked for.
-- KEYS[1] investigation  hash: the job
-- KEYS[2] log        stream: its entries
-- KEYS[3] investigations  zset: all of them by creation
-- KEYS[4] due        zset: what must move on, by deadline
-- KEYS[5] events     stream
-- KEYS[6] audit      stream: what is not sealed yet
-- KEYS[7] run        hash: of the same id, for which it is
-- KEYS[8] runs       zset: all runs by creation
-- ARGV[1] id
-- ARGV[2] queue      short name
-- ARGV[3] resend_after   ms a message may take to reach a worker
-- ARGV[4] prefix     of the agent's keys; touches investigation: and log: keys (same slot)
-- ARGV[5] keep age   of those that have ended, ms
-- ARGV[6] keep count of those that have ended
-- ARGV[7] most       how many may be there at all
-- ARGV[8] entry      the first one of the log, as JSON
-- ARGV[9] fields     how many of the following arguments are field, value, ... to store
-- ARGV[10] run       how many of those after them are field, value, ... of the run; 0: there is none
-- ARGV[11...] fields, then the run's, then field, value, ... of the actor for the audit
-- Returns 1, 0 when it is there already, or -1 when there are too many: it did not begin
-- Events  investigation.started, run.investigating
-- @include common
-- @include audit
-- @include list_job
-- @include place_job
if redis.call('HEXISTS', KEYS[1], 'executionState') == 1 then
  return 0
end
local now = now_ms()
local over = math.max(redis.call('ZCARD', KEYS[3]) + 1 - ARGV[6], redis.call('ZCOUNT', KEYS[3], '-inf', now - ARGV[5]))
if over > 0 then
  for _, old in ipairs(redis.call('ZRANGE', KEYS[3], 0, math.min(over, 100) - 1)) do
    local have = redis.call('HMGET', ARGV[4] .. 'investigation:' .. old, 'executionState', 'endedAt')
    local ended = have[1] ~= 'queued' and have[1] ~= 'running'
    -- A conversation that was begun long ago may have come to its last answer just now.
    local stale = not have[2] or now - have[2] >= tonumber(ARGV[5])
    if ended and (stale or redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[6])) then
      redis.call('ZREM', KEYS[3], old)
      redis.call('DEL', ARGV[4] .. 'investigation:' .. old, ARGV[4] .. 'log:' .. old)
    end
  end
end
if redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[7]) then
  return -1
end
local own = 11 + ARGV[9]
local actor = own + ARGV[10]
-- The job itself last: what fails halfway was not begun, and begins when it comes again.
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'status', 'running', 'createdAt', now, 'updatedAt', now, 'version', 1,
  unpack(ARGV, 11, own - 1))
redis.call('DEL', KEYS[2])
redis.call('XADD', KEYS[2], '*', 'entry', ARGV[8])
redis.call('ZADD', KEYS[3], now, ARGV[1])
audit(KEYS[6], 'investigation.started', 'investigation', ARGV[1], unpack(ARGV, actor))
if ARGV[10] ~= '0' then
  audit(KEYS[6], 'run.pending', 'run', ARGV[1], 'after', 'investigating', unpack(ARGV, actor))
  redis.call('ZADD', KEYS[8], now, ARGV[1])
  redis.call('HSET', KEYS[7], 'id', ARGV[1], 'status', 'investigating', 'createdAt', now, 'updatedAt', now,
    unpack(ARGV, own, actor - 1))
end
place_job(KEYS[1], KEYS[4], 'investigation:' .. ARGV[1], ARGV[2], ARGV[3])
emit(KEYS[5], 'investigation.started', 'investigation', ARGV[1])
if ARGV[10] ~= '0' then
  emit(KEYS[5], 'run.investigating', 'run', ARGV[1])
end
return 1
