-- Store a pending run; where the mode asks for it, an idle agent starts an iteration.
-- urgency    0 critical .. 3 low
-- start      1: start an iteration when idle
-- most       how many runs may be pending
-- fields     field, value, ... to store
-- Returns {1, number of the iteration that began or 0}, 0 for the 1 when the run is there already, or {-1, 0}
--         when too many are pending: it was not stored
-- Events  run.pending, iteration.started
local run, runs, runs_pending, loop, iteration, due, events, audit_open = unpack(KEYS)
local id, urgency, resend_after, start, most, actor = unpack(ARGV, 1, 6)
-- @include audit begin_iteration expect put_in_order rest whole_number
local fields = rest(7)
local status = redis.call('HGET', run, 'status')
if status and status ~= 'pending' then
  return {0, 0}
end
local state = read_loop()
expect(due, 'zset')
if not status then
  if redis.call('ZCARD', runs_pending) >= tonumber(most) then
    return {-1, 0}
  end
  expect(runs, 'zset', audit_open, 'stream')
  local now = now_ms()
  audit('run.pending', 'run', id, 'after', 'pending', unpack(cjson.decode(actor)))
  put_in_order(runs, now, id)
  -- The most urgent first, then in order of arrival.
  redis.call('ZADD', runs_pending, urgency * 1e13 + redis.call('HINCRBY', loop, 'submitted', 1), id)
  -- The run comes last: a run that fails halfway was not accepted, and is when the client repeats it.
  redis.call('HSET', run, 'id', id, 'status', 'pending', 'createdAt', now, 'updatedAt', now, 'formatVersion', FORMAT,
    unpack(fields))
  emit('run.pending', 'run', id)
end
local new = status and 0 or 1
if start == '1' and not whole_number(state.active) and not state.paused then
  return {new, begin_iteration('run', resend_after)}
end
return {new, 0}
