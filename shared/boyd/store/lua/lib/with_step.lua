-- with_step(steps, phase, began, now, started, entered, mark): the attempts at phases so far and one more, each a line of
-- phase, ms after the iteration's start, ms that it took, mark and worker. The mark is `-`, or `x` for an attempt that
-- does not count, or number and attempt of a batch whose worker was lost, as in 3.1. Of lost ones there may be only so
-- many.
local function with_step(steps, phase, began, now, started, entered, mark)
  steps = steps or ''
  local noted = tonumber(mark) and string.find(steps, ' ' .. mark .. ' ', 1, true)
  if noted or (mark ~= '-' and #steps > 16000) then
    return steps
  end
  began = tonumber(began) or now
  local worker = string.match(entered or '', '^(.*)/') or entered or ''
  local offset = began - (tonumber(started) or began)
  return string.format('%s%s %.0f %.0f %s %s\n', steps, phase, offset, now - began, mark, worker)
end
