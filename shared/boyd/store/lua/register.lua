-- Register an agent, or retire it, in place of what was registered before.
-- KEYS[1] agents     hash: agent id to its entry, as JSON
-- KEYS[2] registered hash: agent id to when it was registered, ms; `retired <ms>` once it is retired
-- KEYS[3] freezes    hash: gets the field +, without which nobody acts
-- ARGV[1] id
-- ARGV[2] entry      JSON
-- ARGV[3] retired    1: nobody runs it any more; a heartbeat of a process that does registers it again
-- Returns when, ms: later than every registration before it
-- @include common
local last = tonumber(string.match(redis.call('HGET', KEYS[2], ARGV[1]) or '', '%d+')) or 0
local at = math.max(now_ms(), last + 1)
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[2], ARGV[1], (ARGV[3] == '1' and 'retired ' or '') .. string.format('%.0f', at))
-- Who retires an agent remembers no freezes: after a loss, acting waits for those who do.
if ARGV[3] ~= '1' then
  redis.call('HSETNX', KEYS[3], '+', '0')
end
return at
