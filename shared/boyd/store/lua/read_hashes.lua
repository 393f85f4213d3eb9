-- Read hashes in order until they have so many bytes, so that neither side holds much at once; the first in any case.
-- kind       of what the hashes hold, as in their keys
-- bytes      when they have so many, no more are read
-- fields     to read; none: all of them
-- ids        of the hashes; the key is that of the first
-- Returns {bytes, hash, ...}, with as many hashes as were read: {value, ...}, false for a field that is not there, or
--         {field, value, ...} if all are read; false for a key of another type
local first = unpack(KEYS)
local kind, bytes, fields = unpack(ARGV, 1, 3)
-- @include keys rest
local ids = rest(4)
fields = cjson.decode(fields)
local limit, size = tonumber(bytes), 0
local hashes = {0}

for i, id in ipairs(ids) do
  local hash = i == 1 and first or key(kind, id)
  local values = #fields == 0 and redis.pcall('HGETALL', hash) or redis.pcall('HMGET', hash, unpack(fields))
  hashes[i + 1] = not values.err and values
  for _, text in ipairs(hashes[i + 1] or {}) do
    size = size + (text and #text or 0)
  end
  if size >= limit then
    break
  end
end
hashes[1] = size
return hashes
