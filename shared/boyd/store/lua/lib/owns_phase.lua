-- owns_phase(iteration, n, epoch, phase, worker): return true if *worker* entered this phase under this epoch.
local function owns_phase(iteration, n, epoch, phase, worker)
  local have = redis.call('HMGET', iteration, 'iteration', 'epoch', 'phase', 'entered')
  return have[1] == n and have[2] == epoch and have[3] == phase and have[4] == worker
end
