-- Turn a claimed execution into a procedure: it stays running, and in flight, and a job goes through its steps.
-- id         of the execution
-- token      proves the claim
-- result     JSON: of the call that has started it
-- within     ms until its time is over
-- keep       ms that ended procedures are kept
-- waves      JSON: of each step with targets its id in `step`, and the targets, as JSON, in `items`
-- fields     field, value, ... to store with the job
-- Returns 1, also when it was repeated, or 0 when the claim was lost
-- Events  procedure.started
local execution, job, procedures, due, events, audit_open = unpack(KEYS)
local id, token, result, within, keep, waves = unpack(ARGV, 1, 6)
-- @include audit emit expect place_job put_in_order rest time waves
local fields = rest(7)
local have = redis.call('HMGET', execution, 'state', 'token', 'result', 'action', 'by')
if have[1] ~= 'running' or have[2] ~= token then
  return 0
end
if have[3] then
  return 1
end
expect(job, 'hash', procedures, 'zset', due, 'zset', audit_open, 'stream')
local now = now_ms()
waves = cjson.decode(waves)
for _, wave in ipairs(waves) do
  expect_wave(id .. ':' .. wave.step)
end
audit('procedure.started', 'execution', id, 'action', have[4], 'after', 'running', 'who', have[5])
redis.call('HSET', job, 'id', id, 'state', 'running', 'startedAt', now, 'until', now + within, unpack(fields))
for _, wave in ipairs(waves) do
  add_targets(id .. ':' .. wave.step, wave.items)
end
place_job('procedure:' .. id, '', 0)
for _, old in ipairs(redis.call('ZRANGEBYSCORE', procedures, '-inf', now - keep, 'LIMIT', 0, 100)) do
  if redis.call('EXISTS', key('procedure', old)) == 0 then
    redis.call('ZREM', procedures, old)
  end
end
put_in_order(procedures, now, id)
-- It is kept as long as it runs. With a result, a lapsed claim does not end it.
redis.call('PERSIST', execution)
redis.call('HSET', execution, 'result', result, 'progress', 'running, step 1')
emit('procedure.started', 'procedure', id, 'action', have[4])
return 1
