-- Decide what becomes of a phase that has passed its deadline. If no worker entered it, its message was lost or waits in a
-- queue: the message is sent again, ever more rarely. If a worker entered it and let the lease lapse, a new epoch fences
-- that worker off and the phase is sent again, a limited number of times; then the iteration fails, after settling an
-- action that may have been started. While observers run, it checks that their batches are due.
-- max_attempts  how often a phase may lose its worker
-- queue_timeout  ms that a phase may wait for a worker
-- score      that the sweeper pushed it to: if it is another now, somebody has moved it since
-- Returns {'send'|'wait', n, epoch, phase, queue} ('wait': its message is on its way), {'finish', n, epoch} when complete
--         itself cannot be done, {'none'}, or {'newer', format version}
-- Events  phase
local iteration, due, events = unpack(KEYS)
local resend_after, max_attempts, queue_timeout, score = unpack(ARGV)
-- @include format give_up_act move_on resend watch_batches with_step
if tonumber(redis.call('ZSCORE', due, 'phase') or 0) ~= tonumber(score) then
  return {'none'}
end
local have = redis.call('HMGET', iteration, 'iteration', 'epoch', 'phase', 'entered', 'sentAt', 'queue', 'unserved',
  'formatVersion', 'phaseAt', 'startedAt', 'steps')
local n, epoch, phase, entered, queue = have[1], have[2], have[3], have[4], have[6] or ''
if newer(have[8]) then
  return {'newer', newer(have[8])}
end
if not n then
  redis.call('ZREM', due, 'phase')
  return {'none'}
end
if phase == 'observe' then
  if watch_batches(resend_after) > 0 then
    return {'none'}
  end
  return {'send', tonumber(n), tonumber(epoch), 'orient', ''}
end
local now = now_ms()
local why
local send = true
if entered then
  local attempts = redis.call('HINCRBY', iteration, 'attempts', 1)
  redis.call('HINCRBY', iteration, 'retries', 1)
  redis.call('HDEL', iteration, 'entered')
  local steps = with_step(have[11], phase, have[9], now, have[10], entered, 'x')
  redis.call('HSET', iteration, 'sentAt', now, 'steps', steps)
  epoch = redis.call('HINCRBY', iteration, 'epoch', 1)
  if attempts >= tonumber(max_attempts) then
    why = phase .. ' lost its worker ' .. attempts .. ' times, last ' .. entered
  end
else
  send = resend(redis.call('HINCRBY', iteration, 'resends', 1))
  if now - (tonumber(have[5]) or 0) > tonumber(queue_timeout) then
    why = 'no worker took ' .. phase .. ' within ' .. math.floor(queue_timeout / 1000) .. ' s'
  end
end
redis.call('ZADD', due, now + resend_after, 'phase')
if why and phase == 'complete' then
  return {'finish', tonumber(n), tonumber(epoch)}
end
if why then
  redis.call('HSET', iteration, 'error', why)
  send = true
  if phase == 'act' and (have[7] or '') == '' then
    epoch = give_up_act(why, resend_after)
    queue = 'loop'
  else
    move_on(phase, 'complete', resend_after)
    phase, queue = 'complete', ''
  end
end
return {send and 'send' or 'wait', tonumber(n), tonumber(epoch), phase, queue}
