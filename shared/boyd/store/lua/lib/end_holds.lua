-- @include hold keys
-- Uses held_actions
-- end_holds(classes): end the holds of actions that had no effect in another class of situation than the present one, which
-- *classes* gives by plugin. A hold that cannot be read stays.
local function end_holds(classes)
  if not next(classes) then
    return
  end
  for _, member in ipairs(redis.call('ZRANGE', held_actions, 0, 99)) do
    local held, class = key('hold', member), classes[string.match(member, '^[^:]+')]
    local have = redis.pcall('HMGET', held, 'kind', 'situations', 'action', 'target')
    if class and have[1] == 'no effect' and have[2] ~= '' and not string.find(have[2], class, 1, true) then
      unhold(have[3], have[4])
    end
  end
end
