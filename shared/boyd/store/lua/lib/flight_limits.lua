-- @include flight_stages wake
-- Uses in_flight
-- Limit the executions in flight. Their hash is kept for a year: no procedure is stopped for longer.
local FORGOTTEN = 366 * 86400000

local function write_flight(field, flight)
  flights[field] = flight
  if #flight.ids == 0 then
    redis.call('HDEL', in_flight, field)
  else
    redis.call('HSET', in_flight, field, cjson.encode(flight))
    redis.call('PEXPIRE', in_flight, FORGOTTEN)
  end
end

-- enter_flight(field, limit, id, job, first): add an execution to those in flight. With a *job* it is queued, at the end or
-- as the first.
local function enter_flight(field, limit, id, job, first)
  local flight, arrived = read_flight(field), false
  for _, other in ipairs(flight.ids) do
    arrived = arrived or other == id
  end
  if not arrived then
    table.insert(flight.ids, first and 1 or #flight.ids + 1, id)
  end
  flight.limit, flight.orders[id] = limit, job
  write_flight(field, flight)
end

-- remaining(flight, keeps): return the executions of *flight* for which *keeps* is true.
local function remaining(flight, keeps)
  local left = {limit = flight.limit, ids = {}, orders = {}}
  for _, id in ipairs(flight.ids) do
    if keeps(id) then
      left.ids[#left.ids + 1] = id
      left.orders[id] = flight.orders[id]
    end
  end
  return left
end

-- leave_flight(field, id): remove an execution that is over. The job of the next queued one becomes due; return its name.
local function leave_flight(field, id)
  local flight = read_flight(field)
  local left = remaining(flight, function(other) return other ~= id end)
  if #left.ids == #flight.ids then
    return nil
  end
  write_flight(field, left)
  for _, other in ipairs(left.ids) do
    local job = left.orders[other]
    if stage(other, job) == 'queued' then
      wake(job)
      return job
    end
  end
end

-- in_the_way(place, claim): the execution that has to end before that of *claim* may begin, and how many are before it; nil
-- if none has to. *place* has field, limit, and within: executions with this prefix that are only being verified are no
-- obstacle. *claim* has id and
--   undoes       the execution that it rolls back, which is no obstacle; nor is what is only queued
--   compensates  whether what is only queued is no obstacle
local function in_the_way(place, claim)
  local field, limit = place.field, place.limit
  local flight, stages, ahead, first, arrived = read_flight(field), {}, 0, nil, false
  local precedes = claim.undoes or claim.compensates
  local within = place.within ~= '' and place.within
  for _, other in ipairs(flight.ids) do
    local where = stage(other, flight.orders[other])
    stages[other] = where
    arrived = arrived or other == claim.id
    local ours = other == claim.id or other == claim.undoes
      or (where == 'open' and within and string.sub(other, 1, #within) == within)
    if where and not ours and (where ~= 'queued' or not (arrived or precedes)) then
      ahead, first = ahead + 1, first or other
    end
  end
  -- The next write of the entry removes what has ended.
  flights[field] = remaining(flight, function(other) return stages[other] end)
  if ahead >= limit then
    return first, ahead
  end
end
