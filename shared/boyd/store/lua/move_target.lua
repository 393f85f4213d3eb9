-- Record a change of a target of a step, if its job is still held by that worker. When it is over, the next targets begin;
-- after the last one the procedure goes on.
-- procedure  its id
-- id         of the procedure and step
-- number     of the target
-- state      as in `wave-states`
-- details    JSON, or empty
-- halts      why no other target is begun; or empty
-- Returns {1, names of the jobs that were placed ...}, or {0} when the job is lost
local job, due = unpack(KEYS)
local attempt, worker, procedure, id, number, state, details, halts = unpack(ARGV)
-- @include executes waves
if not executes(job, attempt, worker) then
  return {0}
end
expect(due, 'zset', key('procedure', procedure), 'hash')
expect_wave(id)
local have = redis.call('HMGET', key('wave', id), 'mode', 'limit', 'atOnce')
-- It may make room for one more than there is now.
expect_targets(id, have[1], have[2], have[3] - busy(id) + 1)
local member, names = string.format('%05d', number), {}
if details == '' then
  redis.call('HDEL', key('wave-details', id), member)
else
  redis.call('HSET', key('wave-details', id), member, details)
end
redis.call('ZADD', key('wave-states', id), state, member)
if halts ~= '' then
  halt_wave(id, halts)
end
local states = tonumber(state)
if not (states >= 1 and states <= 3) and states ~= 10 and states ~= 11 then
  names = begin_targets(id)
end
if busy(id) == 0 then
  wake('procedure:' .. procedure)
end
return {1, unpack(names)}
