-- Renew the claim of a running execution.
-- KEYS[1] execution  hash: the ledger's entry
-- ARGV[1] token
-- ARGV[2] lease      ms
-- Returns 1, or 0 when the claim is lost
-- @include common
local have = redis.call('HMGET', KEYS[1], 'state', 'token')
if have[1] ~= 'running' or have[2] ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'leaseUntil', now_ms() + ARGV[2])
return 1
