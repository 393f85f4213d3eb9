-- Record a step of the verification of an execution, if its job is still held by that worker: its verdict, or what was
-- done after that.
-- id         of the execution
-- kind       of the entry in the audit: verified or compensated
-- note       for the audit
-- hold_for   ms to hold the action on its target; 0: until a person lifts it; -1: not at all; empty: as it is held now
-- held       JSON: fields of the hold, and second, if only the second such verdict in a row on the target begins it, and
--            everywhere: ms for which harm stops the action on all targets
-- fields     field, value, ... to store with the execution
-- What has made it worse for the second time within a month is suspended, although it was rolled back.
-- An effect is only credited if nothing else has begun to act on the target meanwhile: otherwise the verdict is cannot tell.
-- Returns the verdict, or '' when the job is lost or the execution is no longer kept
-- Events  execution.verified, autonomy.withdrawn
local job, execution, loop, events, audit_open, held_actions, in_flight, due = unpack(KEYS)
local attempt, worker, id, kind, note, hold_for, held = unpack(ARGV, 1, 7)
-- @include audit count_outcome emit executes expect flight_limits hold notices rest time touch
local fields = rest(8)
local have = redis.call('HMGET', execution, 'action', 'target', 'host', 'verdict', 'symptoms', 'startedAt', 'state')
if not executes(job, attempt, worker) or not have[1] then
  return ''
end
local harms = key('harms', have[1] .. ':' .. have[2])
local unclear, past = key('unclear', have[1] .. ':' .. have[2]), past_key(have[1], have[2])
expect(harms, 'zset', unclear, 'string', past, 'string', loop, 'hash', audit_open, 'stream', held_actions, 'zset', hold_key(have[1], have[2]), 'hash',
  hold_key(have[1], ''), 'hash', in_flight, 'hash')
expect_notice(id)
local MONTH = 30 * 86400000
local known = {}
for i = 1, #fields, 2 do
  known[fields[i]] = fields[i + 1]
end
if known.verdict == 'effective' and have[2] ~= '' then
  expect(key('touched', have[2]), 'zset')
  local other = touched_since(have[2], id, have[6])
  if other then
    known.verdict, hold_for, note = 'cannot tell', '', 'it is well, but ' .. other .. ' acted on it, too'
    fields = {'verdict', known.verdict, 'evidence', note, 'checks', known.checks}
  end
end
held = cjson.decode(held)
local counting = known.verdict and counting_of(execution)
if known.verdict == 'worse' then
  redis.call('ZREMRANGEBYSCORE', harms, '-inf', now_ms() - MONTH)
  redis.call('ZADD', harms, now_ms(), id)
  redis.call('PEXPIRE', harms, MONTH)
end
if known.verdict and held.kind ~= 'cannot tell' then
  redis.call('DEL', unclear)
elseif known.verdict then
  local before = redis.call('EXISTS', unclear) == 1
  redis.call('SET', unclear, id, 'PX', MONTH)
  if held.second and not before then
    hold_for = ''
  end
end
local stops_for = held.everywhere
held.second, held.everywhere = nil, nil
if stops_for and have[2] ~= '' and may_hold(have[1], '', id, math.huge) then
  local where = 'on ' .. have[2] .. (note ~= '' and ': ' .. note or '')
  hold(have[1], '', {kind = 'stopped', execution = id, evidence = where}, tonumber(stops_for))
end
if held.kind == 'rolled back' and redis.call('ZCARD', harms) > 1 then
  held.kind, hold_for = 'suspended', '0'
end
-- Harm is outweighed by more harm, or by an execution that began after it, has succeeded and is effective.
local before = have[7] == 'succeeded' and known.verdict == 'effective' and tonumber(have[6]) or 0
before = (held.kind == 'suspended' or held.kind == 'rolled back') and math.huge or before
if hold_for ~= '' and may_hold(have[1], have[2], id, before) then
  if hold_for == '-1' then
    unhold(have[1], have[2])
    redis.call('DEL', past)
  else
    held.symptoms = (held.kind == 'no effect' or held.kind == 'cannot tell') and have[5] and with_past(past, have[5]) or nil
    -- A hold that only changes its kind began when it did.
    local _, _, cause, since = read_hold(have[1], have[2], '')
    held.since = cause == id and since or nil
    hold(have[1], have[2], held, tonumber(hold_for))
  end
end
audit('action.' .. kind, 'execution', id, 'action', have[1], 'host', have[3], 'before', have[4],
  'after', known.verdict or have[4], 'note', note)
if known.verdict then
  redis.call('HSET', execution, 'verifiedAt', now_ms(), unpack(fields))
  redis.call('HINCRBY', loop, 'verdict:' .. known.verdict, 1)
  -- A target may be well by itself: what was lost while it ran, and may never have begun, has not proved to help.
  local unproven = have[7] == 'unknown' and known.verdict == 'effective'
  count_outcome(execution, counting, unproven and 'cannot tell' or known.verdict)
else
  redis.call('HSET', execution, unpack(fields))
end
-- What has done harm is in flight until that is undone, or cannot be.
if known.verdict ~= 'worse' then
  leave_flight(flight_field(have[1], have[2]), id)
  leave_flight(have[1], id)
end
wake_notice(id)
emit('execution.verified', 'execution', id, 'action', have[1], 'target', have[2], 'verdict', known.verdict or have[4])
return known.verdict or have[4]
