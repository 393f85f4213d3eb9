-- Leave a phase: store what it produced and make the next one due.
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] due        zset: what must move on, by deadline
-- KEYS[3] events     stream
-- ARGV[1] n
-- ARGV[2] epoch
-- ARGV[3] phase
-- ARGV[4] worker     as it entered
-- ARGV[5] next       the phase that follows
-- ARGV[6] resend_after   ms a message may take to reach a worker
-- ARGV[7] queue      that the next phase goes to, or empty: the usual one
-- ARGV[8...] field, value, ... to store
-- Returns 'ok', or 'stale' when the entry was lost (a late writer is refused)
-- Events  phase
-- @include common
-- @include holds
-- @include move_on
if not holds(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]) then
  return 'stale'
end
if #ARGV > 7 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 8))
end
move_on(KEYS[1], KEYS[2], KEYS[3], ARGV[3], ARGV[5], ARGV[6], ARGV[7])
return 'ok'
