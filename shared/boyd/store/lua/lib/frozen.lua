-- Uses freezes
-- A freeze mark is `<ms>` of the last change and, while acting is frozen, a space and the reason.
-- reason_of(mark): why acting is frozen by that mark, or nil. A mark that cannot be read counts as a freeze.
local function reason_of(mark)
  if not mark or string.match(mark, '^%d+$') then
    return nil
  end
  return string.match(mark, '^%d+ (.*)$') or 'the freeze mark cannot be read'
end

-- changed_at(mark): when a freeze mark was last changed, in ms; 0 without one.
local function changed_at(mark)
  return tonumber(string.match(mark or '', '^%d+')) or 0
end

-- revoked(agent, since): why the agent's right to act is revoked, or was after that time in ms; or nil.
local function revoked(agent, since)
  local mark = redis.call('HGET', freezes, 'revoked:' .. agent)
  if since and since < changed_at(mark) then
    return reason_of(mark) or 'it was ordered before the right was given back'
  end
  return reason_of(mark)
end

-- frozen(agent): why the agent may not act, by its own freeze or by that of the deployment, or nil.
local function frozen(agent)
  local marks = redis.call('HMGET', freezes, agent, '*')
  return reason_of(marks[1]) or reason_of(marks[2])
end
