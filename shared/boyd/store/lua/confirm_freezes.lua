-- Bring an agent's copy of the freeze marks up to date: the latest mark of each scope holds, so that no comparison that comes
-- late undoes a newer one.
-- known      1: the agent is registered, and *marks* are all that concern it: from now on claims rely on the copy
-- marks      scope, mark, ...
-- Returns {1 or 0: claims rely on the copy, {scope, mark, ... that are later in the copy}}
local freezes = unpack(KEYS)
local known = unpack(ARGV, 1, 1)
-- @include expect frozen rest
local marks = rest(2)
expect(freezes, 'hash')
local given = {}
for i = 1, #marks, 2 do
  given[marks[i]] = marks[i + 1]
  if changed_at(marks[i + 1]) > changed_at(redis.call('HGET', freezes, marks[i])) then
    redis.call('HSET', freezes, marks[i], marks[i + 1])
  end
end
if tonumber(known) == 1 then
  redis.call('HSET', freezes, '+', server_id())
end
local have, later, confirmed = redis.call('HGETALL', freezes), {}, 0
for i = 1, #have, 2 do
  if have[i] == '+' then
    confirmed = have[i + 1] == server_id() and 1 or 0
  elseif changed_at(have[i + 1]) > changed_at(given[have[i]]) then
    later[#later + 1] = have[i]
    later[#later + 1] = have[i + 1]
  end
end
return {confirmed, later}
