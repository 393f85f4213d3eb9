-- with_step(steps, phase, began, now, started, entered, mark): append an attempt at a phase to *steps*. Each attempt is a
-- line of phase, ms after the iteration's start, duration in ms, mark and worker. The mark is `-`, or `x` for an attempt
-- that does not count, or number and attempt of a batch whose worker was lost, as in 3.1. Such marked lines are dropped
-- once the text is 16 kB long.
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
