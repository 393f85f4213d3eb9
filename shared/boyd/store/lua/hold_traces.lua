-- Hold the export of an agent's traces for a time, and note how far it has come; only one process does so.
-- holder     the process
-- wait       ms until another one may take it over
-- goes_on    1: only if the process still holds it
-- keep       ms that all of it is kept
-- fields     field, value, ... to note; an empty value takes the field away
-- Returns {'held', all fields}, or {'other', holder}
local traces = unpack(KEYS)
local holder, wait, goes_on, keep = unpack(ARGV, 1, 4)
-- @include expect rest time
local fields = rest(5)
expect(traces, 'hash')
local have = redis.call('HMGET', traces, 'holder', 'until')
local now = now_ms()
if have[1] ~= holder and (goes_on == '1' or now < tonumber(have[2] or 0)) then
  return {'other', have[1] or ''}
end
for i = 1, #fields, 2 do
  if fields[i + 1] == '' then
    redis.call('HDEL', traces, fields[i])
  else
    redis.call('HSET', traces, fields[i], fields[i + 1])
  end
end
redis.call('HSET', traces, 'holder', holder, 'until', now + wait)
redis.call('PEXPIRE', traces, keep)
return {'held', redis.call('HGETALL', traces)}
