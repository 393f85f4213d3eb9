-- Make what does not fit together fit, as after a script that failed halfway, or keys that were lost or written by hand:
-- an iteration in flight is due, and so is every open job; one whose record is gone ends.
-- KEYS[1] loop       hash: counter, iteration in flight, last slot, last sweep, paused
-- KEYS[2] iteration  hash: the iteration in flight
-- KEYS[3] due        zset: what must move on, by deadline
-- KEYS[4] history    zset: kept iterations by end
-- KEYS[5] jobs     set: names of the open jobs
-- KEYS[6] events     stream
-- ARGV[1] prefix     of archived iterations
-- ARGV[2] resend_after   ms a message may take to reach a worker
-- ARGV[3] lost       number of an iteration whose record is known to be gone, or empty
-- ARGV[4] why        it fails, for its record
-- ARGV[5] runs       ids of those that it looked into, separated by spaces
-- ARGV[6] results    JSON: what is known of its action
-- Returns {'lost', n, timeline or ''} when the record of n is gone: to be called again with what is known of it; {'ended', n, epoch} when
--         that is done; else {'mended'}
-- Events  phase
-- @include common
-- whole(text): the number that it is, or nil.
local function whole(text)
  local number = tonumber(text or '')
  return number and number >= 0 and number < 2 ^ 53 and number == math.floor(number) and number or nil
end
local now = now_ms()
local have = redis.call('HMGET', KEYS[1], 'iteration', 'active', 'slot', 'timeline')
local flight = redis.call('HMGET', KEYS[2], 'iteration', 'phase', 'epoch')
local running = whole(flight[1])
if not (flight[2] and whole(flight[3])) then
  running = nil
end
if have[3] and not whole(have[3]) then
  redis.call('HDEL', KEYS[1], 'slot')
end
local jobs = redis.pcall('SMEMBERS', KEYS[5])
if jobs.err then
  -- A key of another type: the jobs that are due are those that there are.
  redis.call('DEL', KEYS[5])
  jobs = {}
  for _, name in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    if name ~= 'phase' and not string.match(name, '^batch:') then
      redis.call('SADD', KEYS[5], name)
    end
  end
end
for _, name in ipairs(jobs) do
  if not redis.call('ZSCORE', KEYS[3], name) then
    redis.call('ZADD', KEYS[3], now, name)
  end
end
local active = whole(have[2]) or running
if have[2] ~= (active and string.format('%.0f', active)) then
  if active then
    redis.call('HSET', KEYS[1], 'active', string.format('%.0f', active))
  else
    redis.call('HDEL', KEYS[1], 'active')
  end
end
if not whole(have[1]) or whole(have[1]) < (active or 0) then
  local last = redis.call('ZREVRANGE', KEYS[4], 0, 0)[1]
  redis.call('HSET', KEYS[1], 'iteration', string.format('%.0f', math.max(active or 0, whole(last) or 0)))
end
if not active then
  redis.call('ZREM', KEYS[3], 'phase')
  return {'mended'}
end
if running == active then
  if not redis.call('ZSCORE', KEYS[3], 'phase') then
    redis.call('ZADD', KEYS[3], now, 'phase')
  end
  return {'mended'}
end
local n = string.format('%.0f', active)
if redis.call('EXISTS', ARGV[1] .. n) == 1 then
  if not redis.call('ZSCORE', KEYS[4], n) then
    redis.call('ZADD', KEYS[4], now, n)
  end
  redis.call('HDEL', KEYS[1], 'active')
  redis.call('ZREM', KEYS[3], 'phase')
  return {'mended'}
end
if ARGV[3] ~= n then
  return {'lost', n, have[4] or ''}
end
-- Under an epoch that no worker has had.
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'iteration', n, 'timeline', have[4] or '', 'trigger', 'unknown', 'epoch', now, 'phase', 'complete', 'startedAt', now,
  'sentAt', now, 'phaseAt', now, 'resends', 0, 'attempts', 0, 'retries', 0, 'error', ARGV[4], 'runs', ARGV[5], 'results', ARGV[6])
redis.call('ZADD', KEYS[3], now + ARGV[2], 'phase')
emit(KEYS[6], 'phase', 'iteration', n, 'phase', 'complete')
return {'ended', n, now}
