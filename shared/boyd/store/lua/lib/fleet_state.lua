-- @include server
-- Uses agents, registered, freezes
-- fleet_state(): return a digest of what heartbeats compare: the registrations, the freeze marks and the run of the server.
-- Times only grow, so their sum changes with any of them.
local function fleet_state()
  local sum, count = 0, redis.call('HLEN', agents)
  for _, key in ipairs({registered, freezes}) do
    local fields = redis.call('HGETALL', key)
    count = count + #fields
    for i = 2, #fields, 2 do
      sum = (sum + tonumber(string.match(fields[i], '%d+') or 0)) % 2 ^ 52
    end
  end
  return string.format('%.0f:%d:%s', sum, count, string.sub(server_id(), 1, 8))
end
