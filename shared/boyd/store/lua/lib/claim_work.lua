-- @include emit expect intake keys time
-- Uses runs_pending
-- Claim what waits, once per iteration, when it enters orient: pending runs, most urgent first, and observations from outside.
-- What arrives after this waits for the follow-up iteration.

-- read_work(ids): return what waits, as a claim; *ids* are the runs that an attempt before has claimed, if one has. The caller
-- stores its `fields` in the iteration before it takes the claim, so that the next attempt completes one that fails halfway.
local function read_work(ids)
  local claim = {ids = ids, fields = {}}
  if ids then
    expect(runs_pending, 'zset')
  else
    local batch = read_intake()
    claim.ids, claim.intake = table.concat(redis.call('ZRANGE', runs_pending, 0, 99), ' '), batch
    claim.fields = {'runs', claim.ids, 'intake', batch.taken, 'intakeTimes', batch.times}
  end
  for id in string.gmatch(claim.ids, '%S+') do
    expect(key('run', id), 'hash')
  end
  return claim
end

-- take_work(claim, n): take what iteration *n* has claimed; return the hashes of its runs.
local function take_work(claim, n)
  if claim.intake then
    remove_intake(claim.intake)
  end
  local runs = {}
  for id in string.gmatch(claim.ids, '%S+') do
    local run = key('run', id)
    local status = redis.call('HGET', run, 'status')
    if status == 'pending' then
      redis.call('HSET', run, 'status', 'investigating', 'iteration', n, 'updatedAt', now_ms())
      emit('run.investigating', 'run', id, 'iteration', n)
    end
    redis.call('ZREM', runs_pending, id)
    -- A cancelled one may have been forgotten since an attempt before this one claimed it.
    if status and status ~= 'cancelled' then
      runs[#runs + 1] = redis.call('HGETALL', run)
    end
  end
  return runs
end
