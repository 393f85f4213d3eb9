-- Renew the lease of what a worker has entered.
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] due        zset: what must move on, by deadline
-- ARGV[1] n
-- ARGV[2] member     'phase' or 'batch:<number>'
-- ARGV[3] fence      epoch of the phase, attempt of the batch
-- ARGV[4] worker     as it entered
-- ARGV[5] lease      ms
-- Returns 1, or 0 when the lease is lost
-- @include common
local phase = ARGV[2] == 'phase'
local have = redis.call('HMGET', KEYS[1], 'iteration', phase and 'epoch' or ARGV[2] .. ':attempt',
  phase and 'entered' or ARGV[2] .. ':by')
if have[1] ~= ARGV[1] or have[2] ~= ARGV[3] or have[3] ~= ARGV[4] then
  return 0
end
redis.call('ZADD', KEYS[2], 'XX', now_ms() + ARGV[5], ARGV[2])
return 1
