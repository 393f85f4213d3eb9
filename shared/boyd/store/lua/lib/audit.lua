-- Uses audit_open
-- audit(kind, field, value, ...): record a change in the open audit stream, in the step that makes it. The entry's id is
-- its time. Fields: the actor's, as `actor_fields(actor)` gives them (who, name, key, from, claims), `before` and `after`, and
-- what was changed (approval, run, note ...). A pair whose value is false, nil or '' is left out, so that what HGET
-- answers fits. To pass an actor on, let its pairs be the last arguments:
--   audit('approval.denied', 'approval', id, 'before', 'pending', 'after', 'denied', unpack(actor))
-- The names kind, seq, at, prev and hash are the chain's own. The stream has no cap: sealing empties it.
local function audit(kind, ...)
  local entry = {'kind', kind}
  for i = 1, select('#', ...), 2 do
    local field, value = select(i, ...)
    if value and value ~= '' then
      entry[#entry + 1] = field
      entry[#entry + 1] = value
    end
  end
  redis.call('XADD', audit_open, '*', unpack(entry))
end
