-- A phase has passed its deadline. Nobody entered it: its message was lost or waits in a queue, so the same
-- message is sent again, ever more rarely. Somebody entered it and let the lease lapse: a new epoch shuts that
-- worker out and the phase is sent again, a limited number of times; then the iteration fails, and an action that may
-- have been started is settled before. While observers run, it is looked whether their batches are due.
-- KEYS[1] iteration  hash: the iteration in flight
-- KEYS[2] due        zset: what must move on, by deadline
-- KEYS[3] events     stream
-- ARGV[1] resend_after   ms a message may take to reach a worker
-- ARGV[2] attempts   how often a phase may lose its worker
-- ARGV[3] queue_timeout   ms that a phase may wait for a worker
-- ARGV[4] score      that the sweeper pushed it to: if it is another now, somebody has moved it since
-- Returns {'send'|'wait', n, epoch, phase, queue} ('wait': its message is on its way), {'finish', n, epoch} when complete
--         itself cannot be done, or {'none'}
-- Events  phase
-- @include common
-- @include move_on
-- @include resend
-- @include settle_act
-- @include watch_batches
if tonumber(redis.call('ZSCORE', KEYS[2], 'phase') or 0) ~= tonumber(ARGV[4]) then
  return {'none'}
end
local have = redis.call('HMGET', KEYS[1], 'iteration', 'epoch', 'phase', 'entered', 'sentAt', 'queue', 'unserved')
local n, epoch, phase, entered, queue = have[1], have[2], have[3], have[4], have[6] or ''
if not n then
  redis.call('ZREM', KEYS[2], 'phase')
  return {'none'}
end
if phase == 'observe' then
  if watch_batches(KEYS[1], KEYS[2], KEYS[3], ARGV[1]) > 0 then
    return {'none'}
  end
  return {'send', tonumber(n), tonumber(epoch), 'orient', ''}
end
local now = now_ms()
local why
local send = true
if entered then
  local attempts = redis.call('HINCRBY', KEYS[1], 'attempts', 1)
  redis.call('HINCRBY', KEYS[1], 'retries', 1)
  redis.call('HDEL', KEYS[1], 'entered')
  redis.call('HSET', KEYS[1], 'sentAt', now)
  epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  if attempts >= tonumber(ARGV[2]) then
    why = phase .. ' lost its worker ' .. attempts .. ' times, last ' .. entered
  end
else
  send = resend(redis.call('HINCRBY', KEYS[1], 'resends', 1))
  if now - (tonumber(have[5]) or 0) > tonumber(ARGV[3]) then
    why = 'no worker took ' .. phase .. ' within ' .. math.floor(ARGV[3] / 1000) .. ' s'
  end
end
redis.call('ZADD', KEYS[2], now + ARGV[1], 'phase')
if why and phase == 'complete' then
  return {'finish', tonumber(n), tonumber(epoch)}
end
if why then
  redis.call('HSET', KEYS[1], 'error', why)
  send = true
  if phase == 'act' and (have[7] or '') == '' then
    epoch = settle_act(KEYS[1], KEYS[2], why, ARGV[1])
    queue = 'loop'
  else
    move_on(KEYS[1], KEYS[2], KEYS[3], phase, 'complete', ARGV[1])
    phase, queue = 'complete', ''
  end
end
return {send and 'send' or 'wait', tonumber(n), tonumber(epoch), phase, queue}
