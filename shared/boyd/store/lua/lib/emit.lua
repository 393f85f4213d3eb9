-- @include keys time
-- Uses events
-- emit(kind, field, value, ...): append to the agent's event stream, which keeps its last ~1000 entries. An event that
-- cannot be written stops nothing: the failure is recorded in the loop's hash, where `boyd doctor` finds it.
local function emit(kind, ...)
  local reply = redis.pcall('XADD', events, 'MAXLEN', '~', 1000, '*', 'kind', kind, ...)
  if type(reply) == 'table' and reply.err then
    redis.pcall('HSET', key('loop'), 'eventsLostAt', now_ms(), 'eventsLostWhy', tostring(reply.err))
  end
end
