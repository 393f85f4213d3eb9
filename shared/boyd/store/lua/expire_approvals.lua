-- Move the pending items whose deadline has passed to history. Nothing else expires an item.
-- Returns ids of what expired
-- Events  approval.expired, run.failed
local approvals_pending, approvals_history, approvals_fingerprints, events, runs, runs_finished, due, audit_open =
  unpack(KEYS)
local retention = unpack(ARGV)
-- @include settle_approval
retention = cjson.decode(retention)
local ids = redis.call('ZRANGEBYSCORE', approvals_pending, '-inf', now_ms(), 'LIMIT', 0, 100)
local movable = {}
for _, id in ipairs(ids) do
  -- One whose keys somebody has overwritten keeps no other from expiring.
  if pcall(expect_approval, id) then
    movable[#movable + 1] = id
  end
end
if #movable == 0 and ids[1] then
  expect_approval(ids[1])
end
for _, id in ipairs(movable) do
  settle_approval(id, 'expired', {}, 'who', 'clock')
end
return movable
