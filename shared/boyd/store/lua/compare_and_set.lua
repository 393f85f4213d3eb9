-- Set a plugin's value only if it still is what the caller read.
-- KEYS[1] value      string
-- ARGV[1] expected   JSON, or empty: absent
-- ARGV[2] value      JSON
-- ARGV[3] ttl        ms
-- Returns 1 or 0
local current = redis.call('GET', KEYS[1])
if (current or '') ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
