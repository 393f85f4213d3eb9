-- Acknowledge a pending item, which is not escalated meanwhile, or release its acknowledgement.
-- id         of the approval
-- change     by, name and note of the principal, ms until it lapses, if it does; release: end the acknowledgement
-- actor      for the audit
-- Returns 'done', 'unchanged' or 'not-pending'
-- Events  approval.acknowledged, approval.released
local approval, approvals_pending, events, audit_open, due = unpack(KEYS)
local id, change, actor = unpack(ARGV)
-- @include acknowledgement audit emit expect overdue wake
local have = redis.call('HMGET', approval, 'status', 'acknowledgement', 'actionId', 'title')
if have[1] ~= 'pending' or overdue(id) then
  return 'not-pending'
end
change = cjson.decode(change)
local changed = change_acknowledgement(have[2] and cjson.decode(have[2]), change)
if not changed then
  return 'unchanged'
end
expect(audit_open, 'stream', due, 'zset')
expect_jobs('notice:' .. id)
local kind = change.release and 'approval.released' or 'approval.acknowledged'
audit(kind, 'approval', id, 'action', have[3], 'until', changed['until'], 'note', change.note,
  unpack(cjson.decode(actor)))
redis.call('HSET', approval, 'acknowledgement', cjson.encode(changed), 'updatedAt', now_ms())
wake('notice:' .. id)
emit(kind, 'approval', id, 'title', have[4] or have[3] or '', 'by', change.by)
return 'done'
