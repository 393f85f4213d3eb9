-- settle_approval(prefix, pending, history, fingerprints, events, id, status, keep_ms, keep_count): move an item
-- from pending to history. The caller has made sure that it is pending.
local function settle_approval(prefix, pending, history, fingerprints, events, id, status, keep_ms, keep_count)
  local key = prefix .. id
  local now = now_ms()
  redis.call('HSET', key, 'status', status, 'updatedAt', now)
  redis.call('ZREM', pending, id)
  redis.call('HDEL', fingerprints, redis.call('HGET', key, 'fingerprint'))
  redis.call('ZADD', history, now, id)
  redis.call('PEXPIRE', key, keep_ms)
  emit(events, 'approval.' .. status, 'approval', id)
  local over = math.max(redis.call('ZCARD', history) - keep_count, redis.call('ZCOUNT', history, '-inf', now - keep_ms))
  if over > 0 then
    for _, old in ipairs(redis.call('ZRANGE', history, 0, math.min(over, 100) - 1)) do
      redis.call('ZREM', history, old)
      redis.call('DEL', prefix .. old)
    end
  end
end
