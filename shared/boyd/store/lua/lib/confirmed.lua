-- @include server
-- Uses freezes
-- is_confirmed(): return true if the agent's copy of the freeze marks was compared with the deployment's during this run of
-- the server. After a restart, a failover or a move to another server, the last marks may be missing.
local function is_confirmed()
  return redis.call('HGET', freezes, '+') == server_id()
end
