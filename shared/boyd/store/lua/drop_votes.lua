-- Drop approvals that count no more, because keys were revoked or rights are gone.
-- votes      of each approval: the principal, a part of its JSON, and the reason, ...
-- Returns how many were dropped
-- Events  approval.vote
local approval, approvals_pending, events, audit_open = unpack(KEYS)
local id = unpack(ARGV, 1, 1)
-- @include audit emit expect rest
local votes = rest(2)
if not redis.call('ZSCORE', approvals_pending, id) then
  return 0
end
expect(audit_open, 'stream')
local have = redis.call('HMGET', approval, 'actionId', 'title', 'votes')
local dropped, fields = 0, {}
for i = 1, #votes, 3 do
  local vote = redis.call('HGET', approval, 'vote:' .. votes[i])
  -- One that was given again since, with another key, counts.
  if vote and string.find(vote, votes[i + 1], 1, true) then
    audit('approval.vote-dropped', 'approval', id, 'action', have[1], 'before', 'pending', 'after', 'pending', 'note',
      votes[i + 2])
    fields[#fields + 1] = 'vote:' .. votes[i]
    fields[#fields + 1] = 'votedAt:' .. votes[i]
    fields[#fields + 1] = 'request:' .. votes[i]
    dropped = dropped + 1
  end
end
if dropped > 0 then
  redis.call('HSET', approval, 'updatedAt', now_ms(), 'votes', math.max(0, (tonumber(have[3]) or 0) - dropped))
  redis.call('HINCRBY', approval, 'version', 1)
  emit('approval.vote', 'approval', id, 'title', have[2] or have[1] or '')
  redis.call('HDEL', approval, unpack(fields))
end
return dropped
