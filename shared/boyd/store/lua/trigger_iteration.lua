-- Start an iteration of the agent, or join the one in flight. With a slot it is a tick of beat, which starts at most one
-- iteration per slot, however many beats send it.
-- trigger    for the record
-- slot       of the tick, by the time it begins, in ms; or empty
-- slot_field  of the loop, with the last slot: `slot` of the interval, or `scheduled` of the schedule
-- needs_earlier_slot  1: while the loop has no earlier slot, this one is only noted, and starts no iteration: nothing was missed
-- slot_length  ms: a tick that comes after the slot's end, or long before it begins, is skipped
-- remember_for  ms that the request is remembered, or 0: it does not come again
-- Returns {'started'|'joined', n}, {'paused', why}, {'duplicate', last slot}, {'late', slot}, or
--         {'newer', format version}
-- Events  iteration.started
local loop, iteration, due, events, audit_open, asked = unpack(KEYS)
local trigger, slot, slot_length, slot_field, needs_earlier_slot, resend_after, remember_for = unpack(ARGV, 1, 7)
-- @include audit begin_iteration expect format rest whole_number
local actor = rest(8)
-- done(outcome, n): remember which iteration the request has led to.
local function done(outcome, n)
  if remember_for ~= '0' then
    redis.call('SET', asked, n, 'PX', remember_for)
  end
  return {outcome, tonumber(n)}
end
local before = remember_for ~= '0' and redis.call('GET', asked)
if before then
  return {'joined', tonumber(before)}
end
local state = read_loop(slot_field)
local paused, last, active = state.paused, state[slot_field], state.active
if newer(state.formatVersion) then
  return {'newer', newer(state.formatVersion)}
end
if paused then
  -- A start by the schedule that falls into a pause is not made up.
  if slot_field == 'scheduled' and slot ~= '' then
    redis.call('HSET', loop, slot_field, slot)
  end
  return {'paused', paused}
end
if slot ~= '' then
  local now = now_ms()
  local claimed = tonumber(last)
  -- While a new interval or offset is rolled out, beats disagree on slots: one that begins within the last is not its own.
  local taken = slot_field == 'slot' and slot_length or 0
  -- A slot that lies ahead was claimed before the clock stepped back: it must not stop the ticks.
  local passed = claimed and tonumber(slot) < claimed + taken and claimed <= now + 10000
  if last == slot or passed then
    return {'duplicate', last}
  end
  if now >= slot + slot_length or tonumber(slot) > now + slot_length + 10000 then
    return {'late', slot}
  end
end
if #actor > 0 then
  expect(audit_open, 'stream')
end
local only_noted = slot ~= '' and needs_earlier_slot == '1' and not tonumber(last)
if slot ~= '' and (only_noted or whole_number(active)) then
  redis.call('HSET', loop, slot_field, slot)
end
if only_noted then
  return {'duplicate', slot}
end
if whole_number(active) then
  return done('joined', active)
end
local n = begin_iteration(trigger, resend_after, slot ~= '' and {slot_field, slot} or nil)
if #actor > 0 then
  audit('loop.triggered', 'iteration', n, unpack(actor))
end
return done('started', n)
