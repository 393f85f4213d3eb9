-- Leave the orient phase: as `leave` to decide, and remember how the observers did (L15).
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] due        zset: what must move on, by deadline
-- KEYS[3] events     stream
-- KEYS[4] health     hash: observer id to its health as JSON
-- ARGV[1] n
-- ARGV[2] epoch
-- ARGV[3] worker
-- ARGV[4] resend_after   ms
-- ARGV[5] situation  JSON
-- ARGV[6] observations  JSON: what the runs, the intake and the hooks added
-- ARGV[7] problems   JSON
-- ARGV[8] blocks     JSON: guards that failed
-- ARGV[9] summary    of the situation, in clear
-- ARGV[10...] observer id, health as JSON, ...
-- Returns 'ok' or 'stale'
-- Events  phase
-- @include common
-- @include holds
-- @include move_on
if not holds(KEYS[1], ARGV[1], ARGV[2], 'orient', ARGV[3]) then
  return 'stale'
end
redis.call('HSET', KEYS[1], 'situation', ARGV[5], 'added', ARGV[6], 'problems', ARGV[7], 'blocks', ARGV[8],
  'summary', ARGV[9])
for i = 10, #ARGV, 2 do
  redis.call('HSET', KEYS[4], ARGV[i], ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[4], 2592000000)
move_on(KEYS[1], KEYS[2], KEYS[3], 'orient', 'decide', ARGV[4])
return 'ok'
