-- @include end_grant expect place_job track
-- Uses loop
-- make_room(action, class): forget the class whose last outcome is the oldest, one with a grant only if all have one.
local function make_room(action, class)
  local tracks = track_key(action)
  if redis.call('HEXISTS', tracks, class) == 1 or redis.call('HLEN', tracks) < MAX_CLASSES then
    return
  end
  local oldest, at
  for _, name in ipairs(redis.call('HKEYS', tracks)) do
    local track = read_track(action, name) or {}
    local rank = (track.updated or 0) + (track.grant and 1e14 or 0)
    if not at or rank < at then
      oldest, at = name, rank
    end
  end
  redis.call('HDEL', tracks, oldest)
end

-- counting_of(execution): return what `count_outcome` needs for an execution whose outcome was not counted yet; else nil.
local function counting_of(execution)
  local have = redis.call('HMGET', execution, 'id', 'action', 'track', 'counted')
  if not have[3] or have[4] then
    return nil
  end
  expect(track_key(have[2]), 'hash', loop, 'hash', key('verify:' .. have[1]), 'hash')
  local plan = cjson.decode(have[3])
  local track = read_track(have[2], plan.class) or {label = plan.label, since = now_ms()}
  return {id = have[1], action = have[2], plan = plan, track = track}
end

-- score(track, plan, y): add the squared errors of the predictions of the outcome, which is 1 or 0.
local function score(track, plan, y)
  local good, all = number(track, 'effective'), number(track, 'effective') + number(track, 'failed')
  local x = plan.confidence
  local calibrated, base = (good + plan.prior * x) / (all + plan.prior), (good + 1) / (all + 2)
  track.scored = number(track, 'scored') + 1
  track.statedError = number(track, 'statedError') + (x - y) ^ 2
  track.calibratedError = number(track, 'calibratedError') + (calibrated - y) ^ 2
  track.baseError = number(track, 'baseError') + (base - y) ^ 2
end

-- failures(track): return the reason to withdraw a grant after failures, in words.
local function failures(track)
  local outcomes = number(track, 'effective') + number(track, 'failed')
  local text = 'too many failures lately: ' .. number(track, 'failed') .. ' of ' .. outcomes
  local unclear = number(track, 'unclear')
  return unclear > 0 and text .. ', ' .. unclear .. ' could not be told' or text
end

-- withdraw(counting, why): end the grant after failures, and start counting again. The job that verifies the execution
-- notifies people.
local function withdraw(counting, why)
  local track, action, class = counting.track, counting.action, counting.plan.class
  end_grant(action, class, track, 'withdrawn', why, 'execution', counting.id)
  if redis.call('EXISTS', key('verify:' .. counting.id)) == 0 then
    place_job('verify:' .. counting.id, counting.plan.queue, 0)
    redis.call('HSET', key('verify:' .. counting.id), 'action', action)
  end
  counting.track = {label = track.label, since = now_ms(), withdrawn = number(track, 'withdrawn') + 1, ended = why,
    endedBy = counting.id}
end

-- widen_grant(grant, execution, good): count an execution that ran by a grant. After as many effective ones in a row as it
-- lets be in flight, it lets twice as many, up to the limit of the action.
local function widen_grant(grant, execution, good)
  local have = redis.call('HMGET', execution, 'grant', 'verify')
  if not grant.inFlight or have[1] ~= grant.id or not have[2] then
    return
  end
  grant.proven = good and grant.proven + 1 or 0
  if grant.proven >= grant.inFlight then
    grant.inFlight, grant.proven = math.min(2 * grant.inFlight, cjson.decode(have[2]).inFlight), 0
  end
end

-- count_outcome(execution, counting, verdict): count the outcome of an execution, once.
local function count_outcome(execution, counting, verdict)
  if not counting then
    return
  end
  local track, plan, good = counting.track, counting.plan, verdict == 'effective'
  make_room(counting.action, plan.class)
  local field = good and 'effective' or verdict == 'cannot tell' and 'unclear' or 'failed'
  if plan.confidence and field ~= 'unclear' then
    score(track, plan, good and 1 or 0)
  end
  track[field] = number(track, field) + 1
  -- Whatever is not known to have helped counts against it.
  if plan.limit then
    local sum = number(track, 'drop') + (good and plan.success or plan.failure)
    track.drop = math.min(plan.limit, math.max(0, sum))
  end
  if track.grant then
    widen_grant(track.grant, execution, good)
  end
  if track.grant and verdict == 'worse' then
    withdraw(counting, counting.id .. ' made it worse')
  elseif track.grant and not good and plan.limit and track.drop >= plan.limit then
    withdraw(counting, failures(track))
  end
  counting.track.updated = now_ms()
  write_track(counting.action, plan.class, counting.track)
  redis.call('HSET', execution, 'counted', 1)
end
