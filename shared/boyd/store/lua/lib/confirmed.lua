-- @include server
-- Uses freezes
-- is_confirmed(): whether the agent's copy of the freeze marks was compared with those of the deployment on this very run of
-- the server. After a restart, a failover or a move to another server, the last marks may be missing.
local function is_confirmed()
  return redis.call('HGET', freezes, '+') == server_id()
end
