-- @include audit cases class_room emit expect place_job put_off
-- Uses audit_open due held_actions symptoms
-- Assign cases at random, to wait or to be acted on.
-- is_critical(action, target): return true if one of the symptoms that an action may be meant to end is critical.
local function is_critical(action, target)
  for _, symptom in ipairs(closest_symptoms(action, target)) do
    if symptom[5] == 'critical' then
      return true
    end
  end
end

-- begin_wait(case, plan): hold the action while a case waits. A job looks whether the case ends by itself.
local function begin_wait(case, plan)
  local id, action, target, now = case.id, case.action, case.target, now_ms()
  local job, held = 'wait:' .. id, hold_key(action, target)
  place_job(job, plan.queue, plan.every)
  put_off(job, plan.every)
  redis.call('HSET', key(job), 'action', action, 'target', target, 'class', plan.class, 'params', plan.params,
    'until', case['until'], 'startedAt', now)
  -- The job lifts it; it ends by itself if that is lost.
  local fields = {kind = 'held out', execution = id, evidence = 'to learn whether it heals by itself'}
  hold(action, target, fields, case['until'] - now + 2 * plan.every)
  redis.call('HSET', held, 'until', case['until'])
  emit('wait.started', 'execution', id, 'action', action, 'target', target)
end

-- draw_case(id, action, target, plan): assign the case of an execution at random, to wait or to be acted on, and count it.
-- *plan* has the share that waits, the draw, class and label of the track record, and within, every and queue of the
-- verification. Return the case; that of before for a repetition; nil if it is no new one, or must not wait.
local LONGEST = 3600000
local function draw_case(id, action, target, plan)
  local name, held, job = case_key(action, target), hold_key(action, target), key('wait:' .. id)
  expect(name, 'hash', track_key(action), 'hash', held, 'hash', job, 'hash', due, 'zset', held_actions, 'zset',
    symptoms, 'string', audit_open, 'stream')
  local latest, episode = read_case(action, target), episode_of(action, target)
  if latest and latest.id == id then
    return latest
  end
  local lasts = latest and is_same_case(latest, episode)
  if lasts or is_critical(action, target) or is_held(action, target, '') or not make_room(action, plan.class) then
    return nil
  end
  local now, waits = now_ms(), plan.draw < plan.share
  local track = read_track(action, plan.class) or {label = plan.label, since = now}
  local trial = track.trial or {}
  -- What waits has as long to end by itself as what is acted on has until it was verified.
  local took = number(trial, 'took')
  if took > LONGEST then
    return nil
  end
  local field = waits and 'waited' or 'cases'
  trial[field], track.trial = number(trial, field) + 1, trial
  local case = {id = id, arm = waits and 'wait' or 'act', ['until'] = waits and tostring(now + plan.within + took) or '',
    action = action, target = target}
  if waits then
    audit('action.held-out', 'execution', id, 'action', action, 'note', plan.draw .. ' is below ' .. plan.share)
    begin_wait(case, plan)
  end
  write_track(action, plan.class, track)
  redis.call('DEL', name)
  redis.call('HSET', name, 'id', id, 'arm', case.arm, 'round', number(track, 'withdrawn'), 'until', case['until'],
    'symptoms', episode, 'class', plan.class)
  redis.call('PEXPIRE', name, episode == '' and 86400000 or 2592000000)
  return case
end

-- wait_left(case, action, target): return the ms for which a case has to wait yet, unless a person has lifted its hold.
local function wait_left(case, action, target)
  local kind, _, execution = read_hold(action, target, '')
  local waits = case.arm == 'wait' and not case.ended and kind == 'held out' and execution == case.id
  return waits and math.max(0, case['until'] - now_ms()) or 0
end
