-- End the wait of a case, if its job is still held by that worker; a repetition changes nothing. What a person has approved
-- goes on.
-- id         of the execution that waits
-- class      of its track record
-- started    when the wait began
-- verdict    well, not well, or unclear
-- Returns 1, or 0 when the job is lost
-- Events  wait.ended
local job, due, symptoms, held_actions, events, audit_open = unpack(KEYS)
local attempt, worker, id, action, target, class, started, verdict, evidence = unpack(ARGV)
-- @include audit cases emit executes expect touch track wake
if not executes(job, attempt, worker) then
  return 0
end
local case_name, held = case_key(action, target), hold_key(action, target)
expect(case_name, 'hash', track_key(action), 'hash', held, 'hash', audit_open, 'stream',
  held_actions, 'zset')
local hold = redis.call('HMGET', held, 'kind', 'execution')
if hold[1] == 'held out' and hold[2] == id then
  unhold(action, target)
end
local case, track = read_case(action, target), read_track(action, class)
if not case or case.id ~= id or case.ended then
  return 1
end
-- What was acted on meanwhile has not ended by itself.
if case.taken or target ~= '' and touched_since(target, id, started) then
  verdict = 'unclear'
end
audit('action.waited', 'execution', id, 'action', action, 'after', verdict, 'note', evidence)
if verdict == 'well' and track and tonumber(case.round) == number(track, 'withdrawn') then
  track.trial = track.trial or {}
  track.trial.wellWithout = number(track.trial, 'wellWithout') + 1
  write_track(action, class, track)
end
redis.call('HSET', case_name, 'ended', verdict)
if verdict == 'well' then
  redis.call('HSET', case_name, 'taken', id)
end
if string.find(id, '^approval:') then
  wake(id)
end
emit('wait.ended', 'execution', id, 'action', action, 'target', target, 'verdict', verdict)
return 1
