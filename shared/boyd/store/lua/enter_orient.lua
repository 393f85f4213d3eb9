-- Enter the orient phase: as `enter_phase`, and claim what waits.
-- Returns {'ok', now, {run hash, ...}}, {'stale'}, or {'newer', format version}; the caller reads the record itself,
--         which here would take far longer
-- Events  run.investigating
local iteration, due, runs_pending, intake, intake_waiting, events = unpack(KEYS)
local n, epoch, worker, lease = unpack(ARGV)
-- @include claim_work format time
local have = redis.call('HMGET', iteration, 'iteration', 'epoch', 'phase', 'entered', 'runs', 'formatVersion')
if have[1] ~= n or have[2] ~= epoch or have[3] ~= 'orient' or have[4] then
  return {'stale'}
end
if newer(have[6]) then
  return {'newer', newer(have[6])}
end
local now, claim = now_ms(), read_work(have[5])
-- First, as this is the key that was not read: if it is of another kind, nothing is changed.
redis.call('ZADD', due, now + lease, 'phase')
redis.call('HSET', iteration, 'entered', worker, 'phaseAt', now, unpack(claim.fields))
return {'ok', now, take_work(claim, n)}
