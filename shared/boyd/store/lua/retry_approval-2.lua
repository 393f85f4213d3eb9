-- An execution has passed its deadline: its message was lost or waits, or its worker let the lease lapse.
-- KEYS[1] approval   hash: the item
-- KEYS[2] due        zset: what must move on, by deadline
-- ARGV[1] id
-- ARGV[2] dispatch   ms
-- ARGV[3] attempts   how many workers it may lose
-- ARGV[4] score      that the sweeper pushed it to: if it is another now, somebody has moved it since
-- Returns {'send'|'give up', attempt, queue, worker} or {'none'}
-- @include common
local member = 'approval:' .. ARGV[1]
if tonumber(redis.call('ZSCORE', KEYS[2], member) or 0) ~= tonumber(ARGV[4]) then
  return {'none'}
end
local have = redis.call('HMGET', KEYS[1], 'executionState', 'executionAttempt', 'queue', 'executionBy')
local state, attempt = have[1], tonumber(have[2])
if state ~= 'queued' and state ~= 'running' then
  redis.call('ZREM', KEYS[2], member)
  return {'none'}
end
local wait = ARGV[2]
if state == 'running' then
  if attempt >= tonumber(ARGV[3]) then
    return {'give up', attempt, have[3] or '', have[4]}
  end
  attempt = redis.call('HINCRBY', KEYS[1], 'executionAttempt', 1)
  redis.call('HSET', KEYS[1], 'executionState', 'queued', 'executionResends', 0)
else
  wait = ARGV[2] * 2 ^ math.min(redis.call('HINCRBY', KEYS[1], 'executionResends', 1), 4)
end
redis.call('ZADD', KEYS[2], now_ms() + wait, member)
return {'send', attempt, have[3] or '', have[4] or ''}
