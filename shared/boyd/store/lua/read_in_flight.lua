-- Read the executions in flight of those actions on those targets, or on all.
-- fields     JSON: action and target, joined by a colon, or an action; none: the first of all that there are
-- limit      how many of all at most
-- Returns {{field, how many may be there, id, target, stage, since, host, requester, approver}, ...}, with '' for what is
-- not known, in the order of their arrival; {'now', ms} comes first
local in_flight = unpack(KEYS)
local fields, limit = unpack(ARGV)
-- @include flight_stages
fields = cjson.decode(fields)
if #fields == 0 then
  fields = {unpack(redis.call('HKEYS', in_flight), 1, tonumber(limit))}
end
local now = now_ms()
local found = {{'now', tostring(now)}}
for _, field in ipairs(fields) do
  local flight, alive = read_flight(field), false
  for _, id in ipairs(flight.ids) do
    local where = stage(id, flight.orders[id])
    if where then
      local have = redis.call('HMGET', key('execution', id), 'startedAt', 'endedAt', 'host', 'by', 'target')
      local item = string.match(id, '^approval:') and redis.call('HMGET', key(id), 'resolvedAt', 'actedBy') or {}
      local called = string.match(id, '^call:') and redis.call('HGET', key(id), 'createdAt')
      local since = where == 'open' and have[2] or have[1] or item[1] or called
      found[#found + 1] = {field, tostring(flight.limit or 1), id, have[5] or '', where, since or tostring(now), have[3] or '',
        have[4] or '', item[2] or ''}
      alive = true
    end
  end
  if not alive then
    -- It was lost with its data, and nobody has asked for that action on that target since.
    redis.call('HDEL', in_flight, field)
  end
end
return found
