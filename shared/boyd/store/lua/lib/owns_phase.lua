-- read_phase(iteration, field, ...): return iteration, epoch, phase, entered, phaseAt, startedAt, steps and abandoned, and
-- those fields.
local function read_phase(iteration, ...)
  return redis.call('HMGET', iteration, 'iteration', 'epoch', 'phase', 'entered', 'phaseAt', 'startedAt', 'steps', 'abandoned',
    ...)
end

-- owns_phase(iteration, n, epoch, phase, worker, field, ...): return what `read_phase` does if *worker* entered this phase
-- under this epoch, or false.
local function owns_phase(iteration, n, epoch, phase, worker, ...)
  local have = read_phase(iteration, ...)
  return have[1] == n and have[2] == epoch and have[3] == phase and have[4] == worker and have
end
