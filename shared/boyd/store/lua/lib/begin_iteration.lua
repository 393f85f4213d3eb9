-- @include emit format keys server time whole_number
-- Uses loop, iteration, due
-- read_loop(field): return iteration, active, paused, timeline, server, formatVersion, again and sweptAt of the loop, by name,
-- and that field; read once.
local loop_state
local function read_loop(field)
  if not loop_state then
    local fields, values = {'iteration', 'active', 'paused', 'timeline', 'server', 'formatVersion', 'again', 'sweptAt', field}, {}
    for i, value in ipairs(redis.call('HMGET', loop, unpack(fields))) do
      values[fields[i]] = value
    end
    loop_state = values
  end
  return loop_state
end

-- last_iteration(known): return the number of the last iteration that began, which the loop hash knows; if it has lost it,
-- the last in history.
local function last_iteration(known)
  if known then
    return known
  end
  local kept = redis.call('ZRANGE', key('history'), -1, -1)
  return whole_number(kept[1]) or 0
end

-- timeline(known, server, now): return an id that changes whenever Redis may have lost data: when the server restarts, when
-- another one takes over, and when the loop hash, with the timeline and the server *known* before, is gone. Iteration
-- numbers may start again then; combined with the timeline, no id is used twice.
local function timeline(known, server, now)
  if known.timeline and known.server == server then
    return known.timeline
  end
  return string.format('%x', now - 1767225600000)
end

-- begin_iteration(trigger, resend_after, changes): start the next iteration of an idle agent. The start phase is due at once:
-- its message has *resend_after* ms to reach a worker before it is sent again. *changes* of the loop are made in the same
-- step.
local function begin_iteration(trigger, resend_after, changes)
  changes = changes or {}
  local flight = redis.pcall('HMGET', iteration, 'iteration', 'phase')
  if whole_number(flight[1]) and flight[2] then
    -- The loop hash was lost while it is in flight: it goes on, and is joined.
    redis.call('HSET', loop, 'iteration', flight[1], 'active', flight[1], unpack(changes))
    return tonumber(flight[1])
  end
  local now = now_ms()
  local server = server_id()
  local known = read_loop()
  local line = timeline(known, server, now)
  local n = last_iteration(whole_number(known.iteration)) + 1
  -- First, as nobody has read this key: if it is of another kind, nothing is changed.
  redis.call('ZADD', due, now + resend_after, 'phase')
  if flight.err or flight[1] then
    redis.call('DEL', iteration)
  end
  -- In one step, so that no number is skipped. A silence before the first sweep is one as well.
  redis.call('HSET', loop, 'iteration', n, 'active', n, 'timeline', line, 'server', server,
    'formatVersion', known.formatVersion or FORMAT, 'sweptAt', known.sweptAt or now, unpack(changes))
  if known.again then
    redis.call('HDEL', loop, 'again')
  end
  redis.call('HSET', iteration, 'iteration', n, 'timeline', line, 'trigger', trigger, 'epoch', 1, 'phase', 'start',
    'startedAt', now, 'sentAt', now, 'phaseAt', now, 'resends', 0, 'attempts', 0, 'retries', 0, 'server', server,
    'formatVersion', FORMAT)
  emit('iteration.started', 'iteration', n, 'trigger', trigger)
  return n
end
