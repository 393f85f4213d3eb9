-- Start an investigation, unless one with its id exists.
-- most       how many may be there at all
-- first      entry of the log, as JSON
-- run        field, value, ... of the run that it is for, which has the same id; or empty
-- fields     field, value, ... to store
-- Returns 1, 0 when it is there already, or -1 when there are too many: it did not start
-- Events  investigation.started, run.investigating
local investigation, log, investigations, due, events, audit_open, run_hash, runs = unpack(KEYS)
local id, queue, resend_after, retention, most, first, run, actor = unpack(ARGV, 1, 8)
-- @include audit emit expect place_job put_in_order rest
local fields = rest(9)
if redis.call('HEXISTS', investigation, 'executionState') == 1 then
  return 0
end
run, actor = cjson.decode(run), cjson.decode(actor)
local keep_ms, keep_count = unpack(cjson.decode(retention).runs)
local now = now_ms()
expect(investigations, 'zset', due, 'zset', audit_open, 'stream', run_hash, 'hash', runs, 'zset')
local over = math.max(redis.call('ZCARD', investigations) + 1 - keep_count,
  redis.call('ZCOUNT', investigations, '-inf', now - keep_ms))
if over > 0 then
  for _, old in ipairs(redis.call('ZRANGE', investigations, 0, math.min(over, 100) - 1)) do
    local have = redis.pcall('HMGET', key('investigation', old), 'executionState', 'endedAt')
    local ended = have[1] ~= 'queued' and have[1] ~= 'running'
    -- A conversation that started long ago may have got its last answer just now.
    local stale = not have[2] or now - have[2] >= keep_ms
    if ended and (stale or redis.call('ZCARD', investigations) >= keep_count) then
      redis.call('ZREM', investigations, old)
      redis.call('DEL', key('investigation', old), key('log', old))
    end
  end
end
if redis.call('ZCARD', investigations) >= tonumber(most) then
  return -1
end
redis.call('HSET', investigation, 'id', id, 'status', 'running', 'createdAt', now, 'updatedAt', now, 'version', 1,
  unpack(fields))
redis.call('DEL', log)
redis.call('XADD', log, '*', 'entry', first)
put_in_order(investigations, now, id)
audit('investigation.started', 'investigation', id, unpack(actor))
if #run > 0 then
  audit('run.pending', 'run', id, 'after', 'investigating', unpack(actor))
  put_in_order(runs, now, id)
  redis.call('HSET', run_hash, 'id', id, 'status', 'investigating', 'createdAt', now, 'updatedAt', now,
    'formatVersion', FORMAT, unpack(run))
end
place_job('investigation:' .. id, queue, resend_after)
emit('investigation.started', 'investigation', id)
if #run > 0 then
  emit('run.investigating', 'run', id)
end
return 1
