-- End the execution of an approved item, and with it the runs that waited for it (A4, L35).
-- KEYS[1] approval   hash: the item
-- KEYS[2] due        zset: what must move on, by deadline
-- KEYS[3] events     stream
-- KEYS[4] runs       zset: all runs by creation
-- KEYS[5] finished   zset: finished runs by end
-- ARGV[1] id
-- ARGV[2] attempt    the execution's fencing token
-- ARGV[3] worker     as it entered, or empty: the sweeper ends what nobody can execute
-- ARGV[4] state      succeeded, failed or unknown
-- ARGV[5] result     JSON
-- ARGV[6] prefix     of run hashes; touches those that waited for the item (same slot)
-- ARGV[7] keep age   of finished runs, ms
-- ARGV[8] keep count of finished runs
-- ARGV[9] keep age   of resolved items, ms
-- ARGV[10...] run id, status, result as JSON, ...
-- Returns 1, or 0 when the entry was lost
-- Events  approval.executed, run.completed, run.failed
-- @include common
-- @include executes
-- @include settle_run
local gives_up = ARGV[3] == '' and redis.call('HGET', KEYS[1], 'executionAttempt') == ARGV[2]
if not gives_up and not executes(KEYS[1], ARGV[2], ARGV[3]) then
  return 0
end
local now = now_ms()
redis.call('HSET', KEYS[1], 'executionState', ARGV[4], 'executionEndedAt', now, 'updatedAt', now, 'result', ARGV[5])
redis.call('ZREM', KEYS[2], 'approval:' .. ARGV[1])
emit(KEYS[3], 'approval.executed', 'approval', ARGV[1], 'state', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[9])
for i = 10, #ARGV, 3 do
  settle_run(ARGV[6], KEYS[4], KEYS[5], KEYS[3], ARGV[i], ARGV[i + 1], 'result', ARGV[i + 2], ARGV[7], tonumber(ARGV[8]))
end
return 1
