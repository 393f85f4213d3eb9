-- Take the right to execute an action once, unless acting is frozen or revoked, or the budget is used up. It reads the
-- agent's copy of the freeze marks, which has to be confirmed first. An agent that is not registered has to wait: Redis
-- has lost data, which the next heartbeat brings back.
-- token      proves the claim when finishing
-- options    lease (ms until the claim lapses unless renewed), idempotent (it may run again when its outcome was lost),
--            limit and window of the budget, keep (ms that the ledger remembers), agent, held (whether holds bind it),
--            situation (its class), within (holds of executions with this prefix do not bind it), in_flight (none: any
--            number of it may be; otherwise JSON with limit, the number that may be in flight on the target, and
--            everywhere, on all targets; waits, whether it waits for them; and undoes or compensates as in
--            `in_the_way`), decided (when it was decided on, in ms; harm since then ends it),
--            ordered (when a person has ordered it, in ms; a revocation since then ends it, also after the right was given
--            back), grant (by which it runs alone, if it needs one), trial (for its case, as in `draw_case`, if that may wait
--            now), read_only (it changes nothing), unregistered (the copy was compared just now, and the agent is not
--            registered);
--            origin: `iteration` with n, epoch and entered of its act phase, `job` with its name as job, attempt and
--            entered, or none
-- fields     field, value, ... to store
-- Returns {'claimed', how many counted against the budget or empty}, {'stale'}, {'cancelled'}, {'frozen', why},
--         {'revoked', why}, {'unconfirmed'}, {'unregistered'}, {'over', how many counted}, {'held'},
--         {'held', by which execution in flight}, {'ungranted'}, {'done', result}, {'running', worker, ms until it lapses},
--         {'waits', for which execution, ms until it is tried again}, {'held out', ms until it is tried again}, {'unknown', why},
--         or {'newer', format version}
-- Events  wait.started
local execution, budget, freezes, origin, audit_open, executions, due, held_actions, in_flight, symptoms, events =
  unpack(KEYS)
local worker, token, options = unpack(ARGV, 1, 3)
-- @include case_draws executes flight_limits format frozen lease_left lose_claim
-- @include owns_phase put_in_order rest server time touch track
local fields = rest(4)
options = cjson.decode(options)
-- The end of an execution wakes the next. In case that is lost, a waiting one tries again after so many ms for each ahead.
local LOOK = 5000
-- list(id, now): add the entry to the index of the ledger, and remove what the ledger has forgotten. A failure stops no
-- action.
local function list(id, now)
  pcall(put_in_order, executions, now, id)
  redis.pcall('ZREMRANGEBYSCORE', executions, '-inf', now - options.keep)
  redis.pcall('PEXPIRE', executions, options.keep)
end
-- field_of(name): return the field of that name among those to store.
local function field_of(name)
  for i = 1, #fields, 2 do
    if fields[i] == name then
      return fields[i + 1]
    end
  end
end
-- is_given_up(waiting): return true if the procedure that waits for an approved step, or its target, was cancelled or is over.
-- Once a procedure goes back, only what undoes a step is still approved.
local function is_given_up(waiting)
  local name = string.match(waiting or '', '^procedure:%S+') or string.match(waiting or '', '^target:%S+')
  local have = name and redis.call('HMGET', key(name), 'cancelled', 'back', 'endedAt', 'executionState')
  return have and (have[1] and not have[2] or have[3] or not have[4])
end
local cancelled, server
if options.origin == 'job' then
  local job = executes(origin, options.attempt, options.entered, 'cancelled', 'server', 'wakes')
  if not job then
    return {'stale'}
  end
  cancelled, server = job[4] or is_given_up(job[6]), job[5]
elseif options.origin then
  local phase = owns_phase(origin, options.n, options.epoch, 'act', options.entered, 'cancelled', 'server')
  if not phase then
    return {'stale'}
  end
  cancelled, server = unpack(phase, 9, 10)
end
local have = redis.call('HMGET', execution, 'state', 'leaseUntil', 'worker', 'result', 'token', 'formatVersion',
  'grant', 'attempts', 'lease')
local state, lease_until, holder = have[1], have[2], have[3]
local now = now_ms()
local flight = options.in_flight
local action, target, id = field_of('action'), field_of('target'), field_of('id')
-- Where it is in flight, with the number that may be there.
local places = {}
if flight then
  flight.id = id
  if flight.limit then
    places[1] = {field = flight_field(action, target), limit = flight.limit, most = flight.limit, within = options.within}
  end
  if flight.everywhere then
    places[#places + 1] = {field = action, limit = flight.everywhere, most = flight.everywhere, within = ''}
  end
end
-- begin_flight(): add the execution to those in flight.
local function begin_flight()
  for _, place in ipairs(places) do
    enter_flight(place.field, place.most, id)
  end
end
-- too_early(): return the reply to a claim before its turn, or nil. Jobs wait in order of arrival, but what undoes comes
-- first.
local function too_early()
  for at, place in ipairs(places) do
    local other, ahead = in_the_way(place, flight)
    -- An execution that was started before must not be reported as never started.
    if other and not flight.waits and not state then
      return {'held', other}
    elseif other then
      for passed = 1, options.origin == 'job' and at or 0 do
        local first = flight.undoes or flight.compensates
        enter_flight(places[passed].field, places[passed].most, id, options.job, first)
        redis.call('HSET', origin, 'executionTurn', id, 'executionTurnAt', flight_field(action, target))
      end
      return {'waits', other, tostring(LOOK * math.min(ahead, 12))}
    end
  end
end
-- take_back(why): undo the first claim of an execution.
local function take_back(why)
  expect(audit_open, 'stream', in_flight, 'hash', budget, 'zset')
  audit('action.failed', 'execution', id, 'action', action, 'host', field_of('host'), 'worker', worker,
    'before', 'running', 'after', 'failed', 'note', 'not begun: ' .. why, 'who', field_of('by'))
  for _, place in ipairs(places) do
    leave_flight(place.field, id)
  end
  redis.call('ZREM', budget, token)
  redis.call('ZREM', executions, id)
  redis.call('DEL', execution)
end
if newer(have[6]) then
  return {'newer', newer(have[6])}
end
-- One that is running and has a result is a procedure, which its job goes on with.
if state == 'succeeded' or state == 'failed' or state == 'running' and have[4] then
  return {'done', have[4]}
end
local repeats = state == 'running' and have[5] == token
local left = state == 'running' and not repeats and lease_left(execution, lease_until, have[9]) or 0
if left > 0 then
  return {'running', holder, left}
end
if not options.unregistered and not is_confirmed(options.agent) then
  return {'unconfirmed'}
end
local freeze, revocation = freeze_reason(options.agent), revocation_reason(options.agent, options.ordered)
if repeats and not (cancelled or freeze or revocation) then
  return {'claimed'}
elseif repeats and have[8] == '1' then
  -- Acting was stopped after a claim whose answer was lost, so that the action has not begun.
  take_back(revocation or freeze or 'cancelled')
  state = nil
end
-- This also holds for an execution that runs again: what began under a grant does not go on without it.
local grant = options.grant or have[7]
local granted = grant and valid_grant(action, options.situation, grant)
local ungranted = grant and not granted
if granted and granted.inFlight and flight and flight.everywhere then
  places[#places].limit = math.min(flight.everywhere, granted.inFlight)
end
-- An execution that was started before and may not run again must not be reported as never started.
if state and (not options.idempotent or cancelled or freeze or revocation or ungranted) then
  local why = 'worker ' .. holder .. ' was lost while executing it'
  if state == 'running' then
    lose_claim(execution, why)
  end
  return {'unknown', redis.call('HGET', execution, 'lost') or why}
end
if cancelled then
  return {'cancelled'}
end
if revocation then
  return {'revoked', revocation}
end
if freeze then
  return {'frozen', freeze}
end
if options.unregistered then
  return {'unregistered'}
end
-- After a restart the ledger may have forgotten a claim of this very iteration or item.
if options.origin and not state and not options.idempotent and server ~= server_id() then
  local why = 'Redis restarted and may have forgotten that it was executed; it was not executed again'
  expect(audit_open, 'stream', in_flight, 'hash')
  if field_of('verify') then
    expect_verification(id)
  end
  redis.call('HSET', execution, 'worker', worker, unpack(fields))
  redis.call('PEXPIRE', execution, options.keep)
  begin_flight()
  list(id, now)
  lose_claim(execution, why)
  return {'unknown', why}
end
-- What overtakes a decision is a hold, too.
local binds = options.held and is_held or options.decided and is_overtaken
if not state and binds and binds(action, target, options.within, options.decided) then
  return {'held'}
end
local waits = too_early()
if waits then
  return waits
end
if ungranted then
  return {'ungranted'}
end
-- Its case is drawn last, when nothing else delays it: nobody's answer depends on the draw.
local case = not state and options.trial and draw_case(id, action, target, options.trial)
local held_out = case and wait_left(case, action, target) or 0
if held_out > 0 then
  redis.call('HSET', origin, 'heldUntil', case['until'])
  return {'held out', tostring(held_out + 2 * options.trial.every)}
end
local used, counts = '', not state and options.limit
if counts then
  used = redis.call('ZCOUNT', budget, '(' .. now - options.window, '+inf')
  if used >= options.limit then
    return {'over', tostring(used)}
  end
end
for _, value in ipairs({'symptoms', symptoms_of(action, target), 'attempts', (tonumber(have[8]) or 0) + 1}) do
  fields[#fields + 1] = value
end
if field_of('track') then
  expect(case_key(action, target), 'hash')
end
-- First, as this is the key that was not read: if it is of another kind, nothing is changed.
audit('action.started', 'execution', id, 'action', action, 'host', field_of('host'), 'worker', worker,
  'who', field_of('by'))
if counts then
  redis.call('ZREMRANGEBYSCORE', budget, '-inf', now - options.window)
  redis.call('ZADD', budget, now, token)
  redis.call('PEXPIRE', budget, options.window)
end
begin_flight()
if field_of('track') then
  fields[#fields + 1] = 'case'
  fields[#fields + 1] = take_case(action, target, id)
end
if options.origin == 'job' then
  redis.call('HSET', origin, 'executionClaimedAt', now, 'executionClaimedBy', worker)
  redis.call('HDEL', origin, 'executionTurn', 'executionTurnAt', 'heldUntil')
end
-- The claim itself last: what fails halfway has not begun.
redis.call('HSET', execution, 'state', 'running', 'worker', worker, 'token', token, 'startedAt', now,
  'leaseUntil', now + options.lease, 'lease', options.lease, 'formatVersion', FORMAT, unpack(fields))
redis.call('PEXPIRE', execution, options.keep)
list(id, now)
if not options.read_only then
  touch(target, id, now)
end
return {'claimed', tostring(used)}
