-- Set a plugin's value only if it still is what the caller read.
-- expected   JSON, or empty: absent
-- value      JSON
-- ttl        ms
-- Returns 1 or 0
local state = unpack(KEYS)
local expected, value, ttl = unpack(ARGV)
local current = redis.call('GET', state)
if (current or '') ~= expected then
  return 0
end
redis.call('SET', state, value, 'PX', ttl)
return 1
