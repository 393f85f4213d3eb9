-- Append to the log of an investigation that this worker works on, and store what has changed with it (T2).
-- KEYS[1] investigation  hash: the job
-- KEYS[2] log        stream: its entries
-- KEYS[3] events     stream
-- KEYS[4] usage      hash: running totals
-- ARGV[1] attempt    its fencing token
-- ARGV[2] worker     as it entered
-- ARGV[3] version    that the log was read at, or empty: pieces of a turn, which change nothing
-- ARGV[4] keep       ms that the log is kept from now on, or empty: it goes on
-- ARGV[5] event      to tell, or empty
-- ARGV[6] entries    how many of the following arguments are entries, as JSON
-- ARGV[7] step       `decides`: what follows was decided now; `starts`: a tool is started, unless it is cancelled
-- ARGV[8...] entries, then field, value, ... to store; an empty value takes the field away
-- Returns {version, restarted}, or {} when it is not ours any more; for pieces of a turn and a start also when it is
--         cancelled. Restarted is 1 when a tool is started that a forgotten worker may have started before.
-- Events  investigation.waiting, investigation.resumed, investigation.ended
-- @include common
-- @include executes
if not executes(KEYS[1], ARGV[1], ARGV[2]) then
  return {}
end
if (ARGV[3] == '' or ARGV[7] == 'starts') and redis.call('HGET', KEYS[1], 'cancelled') then
  return {}
end
if ARGV[3] ~= '' and redis.call('HGET', KEYS[1], 'version') ~= ARGV[3] then
  return {}
end
-- After a restart of Redis what was decided before may have been executed, and its claim forgotten (L32).
local restarted = ARGV[7] == 'starts' and redis.call('HGET', KEYS[1], 'server') ~= server_id()
local after = 8 + ARGV[6]
for i = 8, after - 1 do
  redis.call('XADD', KEYS[2], '*', 'entry', ARGV[i])
end
if ARGV[3] == '' then
  return {redis.call('HGET', KEYS[1], 'version'), 0}
end
redis.call('HSET', KEYS[1], 'updatedAt', now_ms())
if ARGV[7] == 'decides' then
  redis.call('HSET', KEYS[1], 'server', server_id())
end
for i = after, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'endedAt', now_ms())
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
  redis.call('HINCRBY', KEYS[4], 'ended ' .. redis.call('HGET', KEYS[1], 'ending'), 1)
end
if ARGV[5] ~= '' then
  local id = redis.call('HGET', KEYS[1], 'id')
  emit(KEYS[3], 'investigation.' .. ARGV[5], 'investigation', id)
end
return {tostring(redis.call('HINCRBY', KEYS[1], 'version', 1)), restarted and 1 or 0}
