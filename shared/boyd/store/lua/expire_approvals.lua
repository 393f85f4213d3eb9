-- Move the pending items whose deadline has passed to history. Nothing else expires an item.
-- Returns ids of what expired
-- Events  approval.expired, run.failed
local approvals_pending, approvals_history, approvals_fingerprints, events, runs, runs_finished, due, audit_open =
  unpack(KEYS)
local retention = unpack(ARGV)
-- @include settle_approval
retention = cjson.decode(retention)
local ids = redis.call('ZRANGEBYSCORE', approvals_pending, '-inf', now_ms(), 'LIMIT', 0, 100)
for _, id in ipairs(ids) do
  expect_approval(id)
end
for _, id in ipairs(ids) do
  settle_approval(id, 'expired', {}, 'who', 'clock')
end
return ids
