-- audit(stream, kind, field, value, ...): note a change in an agent's open audit stream, in the step that makes it (A15).
-- The entry's id is its time. Fields: the actor's, as `actor_fields(actor)` gives them (who, key, from, claims), `before`
-- and `after`, and what was changed (approval, run, note ...). A pair whose value is false, nil or '' is left out, so
-- that what HGET answers fits. To pass an actor on, let its pairs be the last arguments of the script:
--   audit(KEYS[3], 'approval.denied', 'approval', ARGV[1], 'before', 'pending', 'after', 'denied', unpack(ARGV, 5))
-- The names kind, seq, at, prev and hash are the chain's own. The stream has no cap: sealing empties it.
local function audit(stream, kind, ...)
  local entry = {'kind', kind}
  for i = 1, select('#', ...), 2 do
    local field, value = select(i, ...)
    if value and value ~= '' then
      entry[#entry + 1] = field
      entry[#entry + 1] = value
    end
  end
  redis.call('XADD', stream, '*', unpack(entry))
end
