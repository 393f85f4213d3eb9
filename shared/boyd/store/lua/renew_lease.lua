-- Renew the lease of what a worker has entered.
-- member     'phase' or 'batch:<number>'
-- fence      epoch of the phase, attempt of the batch
-- worker     as it entered
-- Returns 1, or 0 when the lease is lost
local iteration, due = unpack(KEYS)
local n, member, fence, worker, lease = unpack(ARGV)
-- @include time
local phase = member == 'phase'
local have = redis.call('HMGET', iteration, 'iteration', phase and 'epoch' or member .. ':attempt',
  phase and 'entered' or member .. ':by')
if have[1] ~= n or have[2] ~= fence or have[3] ~= worker then
  return 0
end
redis.call('ZADD', due, 'XX', now_ms() + lease, member)
return 1
