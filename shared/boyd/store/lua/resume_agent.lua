-- Resume a paused agent; work that arrived meanwhile starts an iteration.
-- Returns number of the iteration that begins, or 0
-- Events  agent.resumed, iteration.started
local loop, iteration, due, events, runs_pending, intake, audit_open = unpack(KEYS)
local resend_after = unpack(ARGV, 1, 1)
-- @include audit begin_iteration expect rest time whole_number work_waits
local actor = rest(2)
local state = read_loop()
local waits = work_waits()
expect(due, 'zset')
if state.paused then
  expect(audit_open, 'stream')
  redis.call('HDEL', loop, 'paused', 'pausedAt')
  redis.call('HSET', loop, 'resumedAt', now_ms())
  emit('agent.resumed')
  audit('agent.resumed', 'before', 'paused', 'after', 'running', unpack(actor))
end
if whole_number(state.active) or not waits then
  return 0
end
return begin_iteration('resume', resend_after)
