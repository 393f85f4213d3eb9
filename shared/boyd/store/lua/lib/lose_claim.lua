-- @include audit begin_verification expect time
-- Uses in_flight
-- lose_claim(execution, why): record in the ledger and the audit that the outcome of an execution is unknown.
local function lose_claim(execution, why)
  local have = redis.call('HMGET', execution, 'id', 'action', 'by', 'worker', 'host', 'verify', 'target', 'verdict')
  if have[6] then
    expect_verification(have[1])
  end
  expect(in_flight, 'hash')
  audit('action.unknown', 'execution', have[1], 'action', have[2], 'host', have[5], 'worker', have[4],
    'before', 'running', 'after', 'unknown', 'note', why, 'who', have[3])
  begin_verification(execution, {id = have[1], action = have[2], target = have[7], verify = have[6], verdict = have[8]})
  redis.call('HSET', execution, 'state', 'unknown', 'lost', why, 'endedAt', now_ms())
end
