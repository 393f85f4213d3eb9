-- Continue a conversation that has come to an end with one more question.
-- entry      of the log, as JSON
-- request    the same when it is repeated, or empty
-- Returns {'ok', attempt}, {'busy'}, {'unknown'}, or {'newer', format version}
-- Events  investigation.started
local investigation, log, due, events, audit_open = unpack(KEYS)
local id, entry, queue, resend_after, request = unpack(ARGV, 1, 5)
-- @include audit emit expect format rest schedule_job server
local actor = rest(6)
local have = redis.call('HMGET', investigation, 'status', 'executionState', 'saidRequest', 'executionAttempt',
  'formatVersion')
if not have[1] then
  return {'unknown'}
end
if newer(have[5]) then
  return {'newer', newer(have[5])}
end
if request ~= '' and have[3] == request then
  return {'ok', have[4]}
end
if have[1] ~= 'ended' or have[2] == 'queued' or have[2] == 'running' then
  return {'busy'}
end
expect(log, 'stream', due, 'zset', audit_open, 'stream')
local now = now_ms()
schedule_job('investigation:' .. id, now + resend_after)
redis.call('PERSIST', investigation)
redis.call('PERSIST', log)
redis.call('XADD', log, '*', 'entry', entry)
redis.call('HDEL', investigation, 'ending', 'detail', 'text', 'findings', 'endedAt', 'executionEndedAt',
  'executionNotBefore', 'cancelled', 'cancelledBy')
-- What was lost of the last question does not count against this one.
local attempt = redis.call('HINCRBY', investigation, 'executionAttempt', 1)
redis.call('HSET', investigation, 'status', 'running', 'updatedAt', now, 'executionState', 'queued', 'executionBase',
  attempt - 1, 'executionResends', 0, 'queuedAt', now, 'queue', queue, 'reflection', '{}', 'server', server_id(),
  'saidRequest', request)
redis.call('HINCRBY', investigation, 'version', 1)
emit('investigation.started', 'investigation', id)
audit('investigation.continued', 'investigation', id, unpack(actor))
return {'ok', attempt}
