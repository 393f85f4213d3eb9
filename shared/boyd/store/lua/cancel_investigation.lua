-- Cancel an investigation: nothing more is started for it, and its next worker ends it (T5).
-- KEYS[1] investigation  hash: the job
-- KEYS[2] due        zset: what must move on, by deadline
-- KEYS[3] events     stream
-- KEYS[4] audit      stream: what is not sealed yet
-- ARGV[1] id
-- ARGV[2] prefix     of the agent's keys; touches its job and its approval (same slot)
-- ARGV[3] principal  who cancels
-- ARGV[4] request    the same when it is repeated, or empty
-- ARGV[5...] field, value, ... of the actor for the audit
-- Returns 'ok', also when it was cancelled before by this request or has not ended yet, 'over' or 'unknown'
-- Events  investigation.cancelled
-- @include common
-- @include audit
-- @include wake
-- @include cancel_investigation
local have = redis.call('HMGET', KEYS[1], 'status', 'cancelRequest')
local status = have[1]
if not status then
  return 'unknown'
end
if ARGV[4] ~= '' and have[2] == ARGV[4] then
  return 'ok'
end
if status == 'ended' then
  return 'over'
end
if cancel_investigation(ARGV[2], KEYS[2], ARGV[1], ARGV[3]) then
  redis.call('HSET', KEYS[1], 'cancelRequest', ARGV[4])
  emit(KEYS[3], 'investigation.cancelled', 'investigation', ARGV[1])
  audit(KEYS[4], 'investigation.cancelled', 'investigation', ARGV[1], 'before', status, unpack(ARGV, 5))
end
return 'ok'
