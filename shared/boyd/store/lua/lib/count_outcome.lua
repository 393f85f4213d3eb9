-- @include class_room coverage end_grant expect place_job
-- Uses loop
-- counting_of(execution): return what `count_outcome` needs for an execution whose outcome was not counted yet; else nil.
local function counting_of(execution)
  local have = redis.call('HMGET', execution, 'id', 'action', 'track', 'counted', 'grant', 'case', 'startedAt', 'endedAt')
  if not have[3] or have[4] then
    return nil
  end
  expect(track_key(have[2]), 'hash', loop, 'hash', key('verify:' .. have[1]), 'hash')
  local plan = cjson.decode(have[3])
  local track = read_track(have[2], plan.class) or {label = plan.label, since = now_ms()}
  local pooled = read_track(have[2], ALL_CLASSES) or {}
  return {id = have[1], action = have[2], plan = plan, track = track, pooled = pooled, alone = have[5], case = have[6],
    took = (have[8] or have[7] or 0) - (have[7] or 0)}
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

-- restart(counting, track, why): return a record that starts counting again after a grant was withdrawn.
local function restart(counting, track, why)
  return {label = track.label, since = now_ms(), updated = track.updated, withdrawn = number(track, 'withdrawn') + 1,
    ended = why, endedBy = counting.id}
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
  counting.track = restart(counting, track, why)
end

-- withdraw_all(counting, why): end all grants of the action.
local function withdraw_all(counting, why)
  local action, tracks = counting.action, track_key(counting.action)
  why = why .. '; all grants of ' .. action .. ' end'
  for _, name in ipairs(redis.call('HKEYS', tracks)) do
    local track = name ~= counting.plan.class and read_track(action, name)
    if track and track.grant then
      end_grant(action, name, track, 'withdrawn', why, 'execution', counting.id)
      write_track(action, name, restart(counting, track, why))
    end
  end
  if counting.track.grant then
    withdraw(counting, why)
  end
  counting.pooled = {}
end

-- add_drop(track, plan, good): add an outcome to the evidence for a drop; return true if it suffices.
local function add_drop(track, plan, good)
  if plan.limit then
    local sum = number(track, 'drop') + (good and plan.success or plan.failure)
    track.drop = math.min(plan.limit, math.max(0, sum))
    return not good and track.drop >= plan.limit
  end
end

-- count_burst(track, length, good): add an outcome to the burst that began less than *length* ms before; else count that
-- burst by its percentage of effective outcomes, rounded down, and begin another one.
local function count_burst(track, length, good)
  local burst, bursts = track.burst, track.bursts or {}
  if burst and now_ms() - burst.since >= length then
    local percent = tostring(math.floor(100 * burst.effective / burst.outcomes))
    bursts[percent], track.bursts, burst = number(bursts, percent) + 1, bursts, nil
  end
  burst = burst or {since = now_ms(), effective = 0, outcomes = 0}
  burst.effective, burst.outcomes = burst.effective + (good and 1 or 0), burst.outcomes + 1
  track.burst = burst
end

-- count_in_trial(counting, good): count an execution in the comparison with waiting, if its case belongs to that.
local function count_in_trial(counting, good)
  local arm, round, class = string.match(counting.case or '', '^(%a+):(%d+)/?%d*:(.*)$')
  local track = counting.track
  if class ~= counting.plan.class or tonumber(round) ~= number(track, 'withdrawn') then
    return
  end
  local trial = track.trial or {}
  if arm == 'wait' then
    trial.needed = number(trial, 'needed') + 1
  elseif good then
    trial.wellAfter = number(trial, 'wellAfter') + 1
    trial.took = math.max(number(trial, 'took'), counting.took)
  end
  track.trial = trial
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
    local most = cjson.decode(have[2]).inFlight or grant.inFlight
    grant.inFlight, grant.proven = math.min(2 * grant.inFlight, most), 0
  end
end

-- count_outcome(execution, counting, verdict): count the outcome of an execution, once.
local function count_outcome(execution, counting, verdict)
  if not counting then
    return
  end
  local track, plan, good = counting.track, counting.plan, verdict == 'effective'
  local is_kept = make_room(counting.action, plan.class)
  local field = good and 'effective' or verdict == 'cannot tell' and 'unclear' or 'failed'
  if plan.confidence and field ~= 'unclear' then
    score(track, plan, good and 1 or 0)
  end
  track[field] = number(track, field) + 1
  if good then
    widen(track, plan)
  end
  count_in_trial(counting, good)
  if plan.burst then
    count_burst(track, plan.burst, good)
  end
  if track.grant then
    widen_grant(track.grant, execution, good)
  end
  -- Whatever is not known to have helped counts against it.
  local drops = add_drop(track, plan, good)
  local pooled = counting.alone and add_drop(counting.pooled, plan, good)
  if verdict == 'worse' and (track.grant or counting.alone) then
    withdraw_all(counting, counting.id .. ' made it worse')
  elseif pooled then
    withdraw_all(counting, failures(track))
  elseif track.grant and drops then
    withdraw(counting, failures(track))
  end
  counting.track.updated = now_ms()
  if is_kept then
    write_track(counting.action, plan.class, counting.track)
  end
  if counting.alone then
    write_track(counting.action, ALL_CLASSES, counting.pooled)
  end
  redis.call('HSET', execution, 'counted', 1)
end
