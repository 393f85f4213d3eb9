-- Store what the dry run of a pending item says now. What it said first is kept beside it once that is something else.
-- KEYS[1] approval   hash: the item
-- KEYS[2] pending    zset: pending items by deadline
-- KEYS[3] events     stream
-- ARGV[1] id
-- ARGV[2] preview    JSON
-- ARGV[3] digest     of what it says
-- Returns 1, or 0 when the item is not pending
-- Events  approval.preview
-- @include common
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  return 0
end
local now = now_ms()
local have = redis.call('HMGET', KEYS[1], 'preview', 'previewDigest', 'firstPreview', 'title')
redis.call('HSET', KEYS[1], 'previewAt', now)
if have[2] == ARGV[3] then
  return 1
end
if have[1] and not have[3] then
  redis.call('HSET', KEYS[1], 'firstPreview', have[1])
end
redis.call('HSET', KEYS[1], 'preview', ARGV[2], 'previewDigest', ARGV[3], 'updatedAt', now)
-- Who answers to what was shown before is told that it has changed.
redis.call('HINCRBY', KEYS[1], 'version', 1)
emit(KEYS[3], 'approval.preview', 'approval', ARGV[1], 'title', have[4] or '')
return 1
