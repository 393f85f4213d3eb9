-- Leave a phase: store what it produced and make the following one due.
-- worker     as it entered
-- queue      that the following phase goes to, or empty: the usual one
-- wait       ms until the following phase is overdue
-- successor  that enters the following phase in the same step, or empty: its message is sent
-- fields     field, value, ... to store
-- Returns {'ok', now}, or {'stale'} when the entry was lost (a late writer is refused)
-- Events  phase
local iteration, due, events = unpack(KEYS)
local n, epoch, phase, worker, following, wait, queue, successor = unpack(ARGV, 1, 8)
-- @include move_on owns_phase rest time
local fields = rest(9)
local have = owns_phase(iteration, n, epoch, phase, worker)
if not have then
  return {'stale'}
end
move_on(phase, following, wait, queue, have, fields, successor)
return {'ok', now_ms()}
