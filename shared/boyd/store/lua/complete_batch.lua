-- Sign a batch off with what its observers saw; whoever signs off last ends the observe phase, exactly once.
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] due        zset: what must move on, by deadline
-- KEYS[3] events     stream
-- ARGV[1] n
-- ARGV[2] batch       its number
-- ARGV[3] attempt    the batch's fencing token
-- ARGV[4] worker     as it entered; empty: nobody has, and the sweeper gives the batch up
-- ARGV[5] resend_after   ms
-- ARGV[6...] field, value, ... to store
-- Returns {'ok', batches still open, epoch} or {'stale'}
-- Events  phase
-- @include common
-- @include move_on
-- @include forget_batch
-- @include close_batch
local batch = 'batch:' .. ARGV[2]
local have = redis.call('HMGET', KEYS[1], 'iteration', 'phase', batch .. ':attempt', batch .. ':by', 'epoch')
if have[1] ~= ARGV[1] or have[2] ~= 'observe' or have[3] ~= ARGV[3] or (have[4] or '') ~= ARGV[4] then
  return {'stale'}
end
for i = 6, #ARGV, 1000 do
  redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
return {'ok', close_batch(KEYS[1], KEYS[2], KEYS[3], ARGV[2], ARGV[5]), tonumber(have[5])}
