-- last_iteration(loop): the number of the last iteration that began; where the loop hash has lost it, of the last in
-- history, which lies beside it.
local function last_iteration(loop)
  local known = tonumber(redis.call('HGET', loop, 'iteration') or '')
  if known then
    return known
  end
  local kept = redis.call('ZRANGE', string.gsub(loop, 'loop$', 'history'), -1, -1)
  return tonumber(kept[1] or 0) or 0
end

-- timeline(loop, server, now): names what has happened since Redis last lost data, or may have: it changes when the
-- server restarts, when another one takes over, and when the loop hash is gone. Numbers of iterations may then begin
-- again; with the timeline, their ids are never used twice.
local function timeline(loop, server, now)
  local known = redis.call('HMGET', loop, 'timeline', 'server')
  if known[1] and known[2] == server then
    return known[1]
  end
  local name = string.format('%x', now - 1767225600000)
  redis.call('HSET', loop, 'timeline', name, 'server', server)
  return name
end

-- begin_iteration(loop, iteration, due, events, trigger, resend_after): start the next iteration of an idle agent.
-- The start phase is due at once: its message has *resend_after* ms to reach a worker before it is sent again.
local function begin_iteration(loop, iteration, due, events, trigger, resend_after)
  local flight = redis.pcall('HMGET', iteration, 'iteration', 'phase')
  if flight.err or flight[1] then
    if flight[1] and flight[2] then
      -- The loop hash was lost while it is in flight: it goes on, and is joined.
      redis.call('HSET', loop, 'iteration', flight[1], 'active', flight[1])
      return tonumber(flight[1])
    end
    redis.call('DEL', iteration)
  end
  local now = now_ms()
  local server = server_id()
  local line = timeline(loop, server, now)
  local n = last_iteration(loop) + 1
  -- In one step, so that no number is skipped; if anything fails after it, `mend` makes the iteration due, or ends it.
  redis.call('HSET', loop, 'iteration', n, 'active', n)
  redis.call('HDEL', loop, 'again')
  redis.call('HSET', iteration, 'iteration', n, 'timeline', line, 'trigger', trigger, 'epoch', 1, 'phase', 'start',
    'startedAt', now, 'sentAt', now, 'phaseAt', now, 'resends', 0, 'attempts', 0, 'retries', 0, 'server', server)
  redis.call('ZADD', due, now + resend_after, 'phase')
  emit(events, 'iteration.started', 'iteration', n, 'trigger', trigger)
  return n
end
