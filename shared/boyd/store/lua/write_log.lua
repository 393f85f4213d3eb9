-- Append to the log of an investigation that this worker works on, and store what has changed with it.
-- attempt    its fencing token
-- worker     as it entered
-- version    of the log as it was read, or empty for pieces of a turn, which change nothing
-- keep       ms that the log is kept, if the investigation has ended; else empty
-- event      to emit, or empty
-- step       `decides`: what follows was decided now; `starts`: a tool is started, unless it is cancelled
-- fields     to store, by name; an empty value takes the field away
-- entries    as JSON
-- Returns {version, restarted}, or {} when another worker has it or the log has changed, and for pieces of a turn and a
--         start also when it is cancelled. Restarted is 1 if Redis may have forgotten that the tool was started before.
-- Events  investigation.waiting, investigation.resumed, investigation.ended
local investigation, log, events, usage = unpack(KEYS)
local attempt, worker, version, keep, event, step, fields = unpack(ARGV, 1, 7)
-- @include emit executes expect rest server
local entries = rest(8)
if not executes(investigation, attempt, worker) then
  return {}
end
local have = redis.call('HMGET', investigation, 'cancelled', 'version', 'server', 'id', 'ending')
if (version == '' or step == 'starts') and have[1] then
  return {}
end
if version ~= '' and have[2] ~= version then
  return {}
end
-- After a restart of Redis what was decided before may have been executed, and its claim forgotten.
local restarted = step == 'starts' and have[3] ~= server_id()
expect(log, 'stream', usage, 'hash')
for _, entry in ipairs(entries) do
  redis.call('XADD', log, '*', 'entry', entry)
end
if version == '' then
  return {have[2], 0}
end
redis.call('HSET', investigation, 'updatedAt', now_ms())
if step == 'decides' then
  redis.call('HSET', investigation, 'server', server_id())
end
local ending = have[5]
for field, value in pairs(cjson.decode(fields)) do
  if value == '' then
    redis.call('HDEL', investigation, field)
  else
    redis.call('HSET', investigation, field, value)
    ending = field == 'ending' and value or ending
  end
end
if keep ~= '' then
  redis.call('HSET', investigation, 'endedAt', now_ms())
  redis.call('PEXPIRE', log, keep)
  redis.call('HINCRBY', usage, 'ended ' .. ending, 1)
end
if event ~= '' then
  emit('investigation.' .. event, 'investigation', have[4])
end
return {tostring(redis.call('HINCRBY', investigation, 'version', 1)), restarted and 1 or 0}
