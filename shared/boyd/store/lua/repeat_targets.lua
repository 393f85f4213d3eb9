-- Let those targets of a step that failed, or that could not be undone, be executed again, if the procedure's job is still
-- held by that worker.
-- id         of the procedure and step
-- first      the first of the states
-- last       the last of them
-- state      that they get
-- Returns 1, or 0 when the job is lost
local job, due = unpack(KEYS)
local attempt, worker, id, first, last, state = unpack(ARGV)
-- @include executes waves
if not executes(job, attempt, worker) then
  return 0
end
expect_wave(id)
set_states(id, redis.call('ZRANGEBYSCORE', key('wave-states', id), first, last), state)
return 1
