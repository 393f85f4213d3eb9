-- Enter a batch of the observe phase: is it open under this attempt, and has nobody entered it?
-- number     the batch's
-- attempt    its fencing token
-- Returns {'ok', batch as JSON}, {'stale'}, or {'newer', format version}
local iteration, due = unpack(KEYS)
local n, number, attempt, worker, lease = unpack(ARGV)
-- @include expect format time
local batch = 'batch:' .. number
local have = redis.call('HMGET', iteration, 'iteration', 'phase', batch .. ':attempt', batch .. ':by', batch, 'formatVersion')
if have[1] ~= n or have[2] ~= 'observe' or have[3] ~= attempt or have[4] then
  return {'stale'}
end
if newer(have[6]) then
  return {'newer', newer(have[6])}
end
expect(due, 'zset')
redis.call('HSET', iteration, batch .. ':by', worker)
redis.call('ZADD', due, now_ms() + lease, batch)
return {'ok', have[5]}
