-- Store a new dry run of a pending item. The first one is kept beside it when it differs.
-- preview    JSON
-- digest     of its content
-- Returns 1, or 0 when the item is not pending
-- Events  approval.preview
local approval, approvals_pending, events = unpack(KEYS)
local id, preview, digest = unpack(ARGV)
-- @include emit overdue
if not redis.call('ZSCORE', approvals_pending, id) or overdue(id) then
  return 0
end
local now = now_ms()
local have = redis.call('HMGET', approval, 'preview', 'previewDigest', 'firstPreview', 'title')
redis.call('HSET', approval, 'previewAt', now)
if have[2] == digest then
  return 1
end
if have[1] and not have[3] then
  redis.call('HSET', approval, 'firstPreview', have[1])
end
redis.call('HSET', approval, 'preview', preview, 'previewDigest', digest, 'updatedAt', now)
-- An answer to the dry run that was shown before is refused as outdated.
redis.call('HINCRBY', approval, 'version', 1)
emit('approval.preview', 'approval', id, 'title', have[4] or '')
return 1
