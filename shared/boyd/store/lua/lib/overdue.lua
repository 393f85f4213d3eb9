-- @include time
-- Uses approvals_pending
-- overdue(id): whether the deadline of a pending item has passed. Nobody acts on it any more; it counts as expired, and
-- the sweeper moves it to history (`expire_approvals`, the only script that does).
local function overdue(id)
  local deadline = redis.call('ZSCORE', approvals_pending, id)
  return deadline and now_ms() >= tonumber(deadline)
end
