-- Leave a phase: store what it produced and make the following one due.
-- worker     as it entered
-- queue      that the following phase goes to, or empty: the usual one
-- fields     field, value, ... to store
-- Returns 1, or 0 when the entry was lost (a late writer is refused)
-- Events  phase
local iteration, due, events = unpack(KEYS)
local n, epoch, phase, worker, following, resend_after, queue = unpack(ARGV, 1, 7)
-- @include move_on owns_phase rest
local fields = rest(8)
local have = owns_phase(iteration, n, epoch, phase, worker)
if not have then
  return 0
end
move_on(phase, following, resend_after, queue, have, fields)
return 1
