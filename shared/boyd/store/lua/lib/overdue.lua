-- @include time
-- Uses approvals_pending
-- overdue(id): return true if the deadline of a pending item has passed. Such an item counts as expired and takes no
-- answer; only `expire_approvals`, which the sweeper runs, moves it to history.
local function overdue(id)
  local deadline = redis.call('ZSCORE', approvals_pending, id)
  return deadline and now_ms() >= tonumber(deadline)
end
