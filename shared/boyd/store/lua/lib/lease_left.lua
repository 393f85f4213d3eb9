-- @include time
-- lease_left(execution, lease_until, lease): return the ms until its claim lapses. A claim that lies further ahead than a
-- lease is from before the clock stepped back: it lasts one lease from now.
local function lease_left(execution, lease_until, lease)
  local left = lease_until - now_ms()
  -- Those of an earlier release do not tell their lease, which was shorter than this.
  local longest = tonumber(lease) or 600000
  if left > longest then
    left = longest
    redis.call('HSET', execution, 'leaseUntil', now_ms() + left)
  end
  return left
end
