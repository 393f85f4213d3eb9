-- expect(key, kind, ...): raise an error unless each key is absent or of that kind. A script does this before its first
-- write, for every key that it writes to without having read it: what cannot be done whole does not start.
local function expect(...)
  for i = 1, select('#', ...), 2 do
    local key, kind = select(i, ...)
    local found = redis.call('TYPE', key).ok
    if found ~= kind and found ~= 'none' then
      error('WRONGTYPE ' .. key .. ' holds a ' .. found .. ' instead of a ' .. kind .. '; nothing was changed')
    end
  end
end
