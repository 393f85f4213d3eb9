-- Assign a case at random to wait before the action: once for each case, and only if the iteration would decide again, so that it
-- has neither runs nor observations from outside. One that waits is held, and a job looks whether it ends by itself.
-- id         of the iteration's execution
-- share      of the cases that wait
-- draw       uniform between 0 and 1
-- plan       JSON: class and label of its track record; within, every and queue of its verification
-- params     JSON
-- Returns {arm, until}: 'act', 'wait' with the end of the wait, or '' if nothing is drawn; or {'stale'}
-- Events  wait.started
local iteration, due, held_actions, symptoms, events, audit_open = unpack(KEYS)
local n, epoch, worker, id, action, target, share, draw, plan, params = unpack(ARGV)
-- @include audit cases class_room emit expect owns_phase place_job put_off
if not owns_phase(iteration, n, epoch, 'decide', worker) then
  return {'stale', ''}
end
local case_name, job, held = case_key(action, target), key('wait:' .. id), hold_key(action, target)
expect(case_name, 'hash', track_key(action), 'hash', held, 'hash', job, 'hash', due, 'zset',
  held_actions, 'zset', symptoms, 'string', audit_open, 'stream')
local known = read_case(action, target)
if known and known.id == id then
  return {known.arm, known['until']}
end
local input = redis.call('HMGET', iteration, 'runs', 'intake')
local is_lasting = (input[1] or '') == '' and (input[2] or '[]') == '[]'
local episode = episode_of(action, target)
local is_open = known and is_same_case(known, episode)
plan = cjson.decode(plan)
if not is_lasting or is_open or is_held(action, target, '') or not make_room(action, plan.class) then
  return {'', ''}
end
local now, waits = now_ms(), tonumber(draw) < tonumber(share)
local track = read_track(action, plan.class) or {label = plan.label, since = now}
track.trial = track.trial or {}
local field = waits and 'waited' or 'cases'
track.trial[field] = number(track.trial, field) + 1
local arm, ends = waits and 'wait' or 'act', waits and tostring(now + plan.within) or ''
if waits then
  audit('action.held-out', 'execution', id, 'action', action, 'note', draw .. ' is below ' .. share)
  place_job('wait:' .. id, plan.queue, plan.every)
  put_off('wait:' .. id, plan.every)
  redis.call('HSET', job, 'action', action, 'target', target, 'class', plan.class, 'params', params, 'until', ends,
    'startedAt', now)
  -- The job lifts it; it ends by itself if that is lost.
  local fields = {kind = 'held out', execution = id, evidence = 'to learn whether it heals by itself'}
  hold(action, target, fields, plan.within + 2 * plan.every)
  redis.call('HSET', held, 'until', ends)
  emit('wait.started', 'execution', id, 'action', action, 'target', target)
end
write_track(action, plan.class, track)
redis.call('DEL', case_name)
redis.call('HSET', case_name, 'id', id, 'arm', arm, 'round', number(track, 'withdrawn'), 'until', ends, 'symptoms', episode,
  'class', plan.class, 'asked', now)
redis.call('PEXPIRE', case_name, episode == '' and 86400000 or 2592000000)
return {arm, ends}
