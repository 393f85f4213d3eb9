-- @include server
-- Uses freezes
-- Read freeze marks: `<ms>` of the last change and, while acting is frozen, a space and the reason.
-- reason_of(mark): why acting is frozen by that mark, or nil. A mark that cannot be read counts as a freeze.
local function reason_of(mark)
  if not mark or string.match(mark, '^%d+$') then
    return nil
  end
  return string.match(mark, '^%d+ (.*)$') or 'the freeze mark cannot be read'
end

-- changed_at(mark): return the time in ms when a freeze mark was last changed; 0 without one.
local function changed_at(mark)
  return tonumber(string.match(mark or '', '^%d+')) or 0
end

-- marks_of(agent): return the marks of its revocation, its freeze and the freeze of the deployment, and the run of the server
-- on which they were confirmed, read once.
local marks
local function marks_of(agent)
  marks = marks or redis.call('HMGET', freezes, 'revoked:' .. agent, agent, '*', '+')
  return marks
end

-- is_confirmed(agent): return true if the agent's copy of the freeze marks was compared with the deployment's during this run
-- of the server. After a restart, a failover or a move to another server, the last marks may be missing.
local function is_confirmed(agent)
  return marks_of(agent)[4] == server_id()
end

-- revocation_reason(agent, since): return the reason why the agent may not act, or was not allowed to after *since* (ms); or
-- nil.
local function revocation_reason(agent, since)
  local mark = marks_of(agent)[1]
  if since and since < changed_at(mark) then
    return reason_of(mark) or 'it was ordered before the right was given back'
  end
  return reason_of(mark)
end

-- freeze_reason(agent): return the reason why the agent may not act, by its own freeze or the deployment's, or nil.
local function freeze_reason(agent)
  local marks = marks_of(agent)
  return reason_of(marks[2]) or reason_of(marks[3])
end
