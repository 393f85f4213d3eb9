-- Begin targets of a step of a procedure, or what undoes them, as many as its limits allow, if the procedure's job is still
-- held by that worker.
-- id         of the procedure and step
-- resumed    1: a person has ordered to go on in spite of what has failed
-- fields     to store: mode (forth or back), limit, atOnce, stopAt, queue and idempotent (1: targets may run again)
-- Returns {1, names of the jobs that were placed ...}, or {0} when the job is lost
local job, due = unpack(KEYS)
local attempt, worker, id, resumed, fields = unpack(ARGV)
-- @include executes waves
local entry = executes(job, attempt, worker, 'cancelled')
if not entry then
  return {0}
end
expect(due, 'zset')
expect_wave(id)
local wave = key('wave', id)
fields = cjson.decode(fields)
expect_targets(id, fields.mode, fields.limit or redis.call('HGET', wave, 'limit') or 0, fields.atOnce)
-- On the way back other limits hold.
if resumed == '1' or redis.call('HGET', wave, 'mode') ~= fields.mode then
  redis.call('HDEL', wave, 'halted')
end
-- The run of the Redis server for which a person has taken responsibility.
redis.call('HSET', wave, 'server', redis.call('HGET', job, 'server'))
for field, value in pairs(fields) do
  redis.call('HSET', wave, field, value)
end
redis.call('HSETNX', wave, 'pardoned', 0)
redis.call('HSETNX', wave, 'pardonedHarm', 0)
if resumed == '1' then
  redis.call('HSET', wave, 'pardoned', count_states(id, 6, 9), 'pardonedHarm', count_states(id, 8, 8))
  redis.call('HINCRBY', wave, fields.mode == 'forth' and 'tries' or 'undoTries', 1)
end
-- A cancellation since the step was recorded has promised that no other target begins.
if entry[4] and fields.mode == 'forth' then
  halt_wave(id, 'cancelled')
end
return {1, unpack(begin_targets(id))}
