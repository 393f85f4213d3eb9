-- Repair what does not fit together, as after keys were lost or written by hand: an iteration in flight is due, and so is
-- every open job; an iteration whose record is gone ends.
-- lost       number of an iteration whose record is known to be gone, or empty
-- why        it fails, for its record
-- run_ids    of the runs that it investigated, separated by spaces
-- results    JSON: what is known of its action
-- Returns {'newer', format version} when a newer release keeps the agent;
--         {'lost', n, timeline or ''} when the record of n is gone: to be called again with what is known of it;
--         {'ended', n, epoch} when that is done; else {'repaired'}
-- Events  phase
local loop, iteration, due, history, jobs, events = unpack(KEYS)
local resend_after, lost, why, run_ids, results = unpack(ARGV)
-- @include emit expect format keys put_in_order time whole_number
local now = now_ms()
local have = redis.call('HMGET', loop, 'iteration', 'active', 'slot', 'timeline', 'formatVersion')
if newer(have[5]) then
  return {'newer', newer(have[5])}
end
local flight = redis.call('HMGET', iteration, 'iteration', 'phase', 'epoch')
expect(due, 'zset', history, 'zset')
local running = whole_number(flight[1])
if not (flight[2] and whole_number(flight[3])) then
  running = nil
end
if have[3] and not whole_number(have[3]) then
  redis.call('HDEL', loop, 'slot')
end
local names = redis.pcall('SMEMBERS', jobs)
if names.err then
  -- A key of another type: the jobs that are due are those that there are.
  redis.call('DEL', jobs)
  names = {}
  for _, name in ipairs(redis.call('ZRANGE', due, 0, -1)) do
    if name ~= 'phase' and not string.match(name, '^batch:') then
      redis.call('SADD', jobs, name)
    end
  end
end
for _, name in ipairs(names) do
  if not redis.call('ZSCORE', due, name) then
    redis.call('ZADD', due, now, name)
  end
end
local active = whole_number(have[2]) or running
if have[2] ~= (active and string.format('%.0f', active)) then
  if active then
    redis.call('HSET', loop, 'active', string.format('%.0f', active))
  else
    redis.call('HDEL', loop, 'active')
  end
end
if not whole_number(have[1]) or whole_number(have[1]) < (active or 0) then
  local last = redis.call('ZREVRANGE', history, 0, 0)[1]
  redis.call('HSET', loop, 'iteration', string.format('%.0f', math.max(active or 0, whole_number(last) or 0)))
end
if not active then
  redis.call('ZREM', due, 'phase')
  return {'repaired'}
end
if running == active then
  if not redis.call('ZSCORE', due, 'phase') then
    redis.call('ZADD', due, now, 'phase')
  end
  return {'repaired'}
end
local n = string.format('%.0f', active)
if redis.call('EXISTS', key('iteration', n)) == 1 then
  if not redis.call('ZSCORE', history, n) then
    put_in_order(history, now, n)
  end
  redis.call('HDEL', loop, 'active')
  redis.call('ZREM', due, 'phase')
  return {'repaired'}
end
if lost ~= n then
  return {'lost', n, have[4] or ''}
end
-- Under an epoch that no worker has had.
redis.call('DEL', iteration)
redis.call('HSET', iteration, 'iteration', n, 'timeline', have[4] or '', 'trigger', 'unknown', 'epoch', now,
  'phase', 'complete', 'startedAt', now, 'sentAt', now, 'phaseAt', now, 'resends', 0, 'attempts', 0, 'retries', 0,
  'error', why, 'runs', run_ids, 'results', results, 'formatVersion', FORMAT)
redis.call('ZADD', due, now + resend_after, 'phase')
emit('phase', 'iteration', n, 'phase', 'complete')
return {'ended', n, now}
