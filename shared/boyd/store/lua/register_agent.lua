-- Register an agent, or retire it, in place of what was registered before.
-- entry      JSON
-- retired    1: out of service; a heartbeat of a process that still runs it registers it again
-- Returns when, ms: later than every registration before it
local agents, registered, freezes = unpack(KEYS)
local id, entry, retired = unpack(ARGV)
-- @include expect time
local last = tonumber(string.match(redis.call('HGET', registered, id) or '', '%d+')) or 0
local at = math.max(now_ms(), last + 1)
expect(agents, 'hash', freezes, 'hash')
redis.call('HSET', agents, id, entry)
redis.call('HSET', registered, id, (retired == '1' and 'retired ' or '') .. string.format('%.0f', at))
-- Retiring an agent restores no freezes: after a loss, acting waits for processes that remember them.
if retired ~= '1' then
  redis.call('HSETNX', freezes, '+', '0')
end
return at
