-- Read hashes in order until they have so many bytes, so that neither side holds much at once; the first in any case.
-- kind       of what the hashes hold, as in their keys
-- bytes      when they have so many, no more are read
-- fields     to read; none: all of them
-- ids        of the hashes; the key is that of the first
-- Returns {{field, value, ...}, ...}, as many as were read; an empty one for a hash that is not there, {'', ''} for
-- a key of another type
local first = unpack(KEYS)
local kind, bytes, fields = unpack(ARGV, 1, 3)
-- @include keys rest
local ids = rest(4)
fields = cjson.decode(fields)
local room = tonumber(bytes)
local found = {}

-- read(hash): return a hash as {field, value, ...}.
local function read(hash)
  if #fields == 0 then
    return redis.pcall('HGETALL', hash)
  end
  local flat = {}
  local values = redis.pcall('HMGET', hash, unpack(fields))
  if values.err then
    return values
  end
  for i, value in ipairs(values) do
    if value then
      flat[#flat + 1] = fields[i]
      flat[#flat + 1] = value
    end
  end
  return flat
end

for i, id in ipairs(ids) do
  local flat = read(i == 1 and first or key(kind, id))
  if flat.err then
    flat = {'', ''}
  end
  found[#found + 1] = flat
  for _, text in ipairs(flat) do
    room = room - #text
  end
  if room <= 0 then
    break
  end
end
return found
