-- resend(count): whether the message of a step that no worker has entered is sent again by this sweep: by the sweeps
-- number 1, 2, 4, 8 and then every 16. In between the sweeper only checks whether there is a worker at all.
local function resend(count)
  return count == 1 or count == 2 or count == 4 or count == 8 or count % 16 == 0
end
