-- place_order(key, due, name, queue, wait): something for a worker to do besides iterations, under the fence of an
-- attempt. It is due in *wait* ms, by when the message that the caller sends has reached a worker.
local function place_order(key, due, name, queue, wait)
  local now = now_ms()
  -- Due before it is there: a due name without an order is dropped, an order that is not due would wait for ever.
  list_order(key, due, name, now + wait)
  redis.call('HSET', key, 'executionState', 'queued', 'executionAttempt', 1, 'executionResends', 0, 'queuedAt', now,
    'server', server_id())
  if queue ~= '' then
    redis.call('HSET', key, 'queue', queue)
  end
end
