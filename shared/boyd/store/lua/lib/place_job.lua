-- @include format schedule_job server time
-- place_job(name, queue, wait): queue something for a worker to do besides iterations, under the fence of an attempt. It
-- is due in *wait* ms, by when the message that the caller sends has reached a worker.
local function place_job(name, queue, wait)
  local now = now_ms()
  -- Due before it is there: a due name without a job is dropped, a job that is not due would wait for ever.
  schedule_job(name, now + wait)
  redis.call('HSET', key(name), 'executionState', 'queued', 'executionAttempt', 1, 'executionResends', 0,
    'queuedAt', now, 'server', server_id(), 'formatVersion', FORMAT)
  if queue ~= '' then
    redis.call('HSET', key(name), 'queue', queue)
  end
end
