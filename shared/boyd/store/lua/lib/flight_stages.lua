-- @include is_open keys time
-- Uses in_flight
-- Track executions in flight: `in_flight` is a hash to {limit, ids, orders} as JSON, with a field for each action and target,
-- and one for each action on all targets. `ids` are the executions there that are queued, running or being verified, in
-- order of arrival; `orders` maps the queued ones to the jobs that will execute them. Actions without a limit are not
-- tracked. Entries whose data was lost, or whose end nobody will report, are removed after LOST ms.
local LOST = 3600000

-- flight_field(action, target): return the field of an action on a target; on all targets it is the action itself.
local function flight_field(action, target)
  return action .. ':' .. target
end

-- read_flight(field): return the entry, read once.
local flights = {}
local function read_flight(field)
  if not flights[field] then
    local text = redis.call('HGET', in_flight, field)
    flights[field] = text and cjson.decode(text) or {ids = {}, orders = {}}
  end
  return flights[field]
end

-- waits(id, job): return true if that job waits for the turn of this execution, or is about to ask for it.
local function waits(id, job)
  return is_open(job) and redis.call('HGET', key(job), 'executionTurn') == id
end

-- stage(id, job): return `queued`, `running` or `open` (being verified), or nil if the execution is not in flight.
local function stage(id, job)
  local have = redis.call('HMGET', key('execution', id), 'state', 'leaseUntil', 'result', 'verdict', 'verifyUntil',
    'compensation')
  local state, lease_until, result, verdict, verify_until = unpack(have, 1, 5)
  if not state then
    return job and waits(id, job) and 'queued' or nil
  end
  local now = now_ms()
  if state == 'running' and result then
    return is_open('procedure:' .. id) and 'running' or nil
  end
  if state == 'running' then
    return now < lease_until + LOST and 'running' or nil
  end
  local undecided = verdict == 'open' or (verdict == 'worse' and not have[6])
  return undecided and now < verify_until + LOST and 'open' or nil
end
