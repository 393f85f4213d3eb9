-- Mark a successful execution as rolled back, once (L33).
-- KEYS[1] execution  hash: the ledger's entry
-- Returns its result as JSON, or nothing when it cannot be rolled back
-- @include common
local have = redis.call('HMGET', KEYS[1], 'state', 'rolledBackAt', 'result')
if have[1] ~= 'succeeded' or have[2] then
  return false
end
redis.call('HSET', KEYS[1], 'rolledBackAt', now_ms())
return have[3]
