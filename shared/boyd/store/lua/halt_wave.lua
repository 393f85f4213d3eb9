-- Begin no other target of a step, if the procedure's job is still held by that worker. Those that no worker has begun yet
-- are not executed.
-- id         of the procedure and step
-- why        for people
-- Returns 1, or 0 when the job is lost
local job, due = unpack(KEYS)
local attempt, worker, id, why = unpack(ARGV)
-- @include executes waves
if not executes(job, attempt, worker) then
  return 0
end
expect(due, 'zset')
expect_wave(id)
halt_wave(id, why)
return 1
