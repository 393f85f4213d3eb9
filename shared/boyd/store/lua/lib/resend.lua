-- resend(count): whether the message of a step that no worker has taken is sent again at this look: after 1, 2, 4, 8 and
-- then every 16 looks. In between the sweeper only looks whether there is a worker at all.
local function resend(count)
  return count == 1 or count == 2 or count == 4 or count == 8 or count % 16 == 0
end
