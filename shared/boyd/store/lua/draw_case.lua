-- Assign the case of what an iteration would execute alone, if it decides again after a wait: it has neither runs nor
-- observations from outside.
-- id         of the iteration's execution
-- plan       JSON, as in `draw_case`
-- Returns {arm, until}: 'act', 'wait' with the end of the wait, or '' if nothing is drawn; or {'stale'}
-- Events  wait.started
local iteration, due, held_actions, symptoms, events, audit_open = unpack(KEYS)
local n, epoch, worker, id, action, target, plan = unpack(ARGV)
-- @include case_draws owns_phase
if not owns_phase(iteration, n, epoch, 'decide', worker) then
  return {'stale', ''}
end
local input = redis.call('HMGET', iteration, 'runs', 'intake')
local is_lasting = (input[1] or '') == '' and (input[2] or '[]') == '[]'
local case = is_lasting and draw_case(id, action, target, cjson.decode(plan))
return case and {case.arm, case['until']} or {'', ''}
