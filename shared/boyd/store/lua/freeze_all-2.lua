-- Note that acting is frozen everywhere (L34), or no longer; the agents are told one by one.
-- KEYS[1] frozen     string: why
-- KEYS[2] audit      stream: open audit entries of the deployment
-- ARGV[1] freeze     1: freeze, 0: thaw
-- ARGV[2] reason
-- ARGV[3...] actor   field and value pairs
-- Returns nothing
-- @include audit
local before = redis.call('GET', KEYS[1]) and 'frozen' or 'acting'
if ARGV[1] == '1' then
  redis.call('SET', KEYS[1], ARGV[2])
  audit(KEYS[2], 'deployment.frozen', 'before', before, 'after', 'frozen', 'note', ARGV[2], unpack(ARGV, 3))
elseif redis.call('DEL', KEYS[1]) == 1 then
  audit(KEYS[2], 'deployment.unfrozen', 'before', before, 'after', 'acting', unpack(ARGV, 3))
end
