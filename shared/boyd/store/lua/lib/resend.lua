-- resend(count): return true if sweep number *count* sends the message of a step again that no worker has entered: sweeps
-- 1, 2, 4, 8 and then every 16th do. The other sweeps only check that there is a worker at all.
local function resend(count)
  return count == 1 or count == 2 or count == 4 or count == 8 or count % 16 == 0
end
