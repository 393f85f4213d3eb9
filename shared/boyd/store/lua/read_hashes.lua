-- Read hashes in order until they have so many bytes, so that neither side holds much at once; the first in any case.
-- KEYS[1] hash       the first of them
-- ARGV[1] bytes
-- ARGV[2] prefix     of the hashes; touches those that are named (same slot)
-- ARGV[3] fields     how many of the following arguments are fields to read; 0: all of them
-- ARGV[4...] fields, then the ids of the other hashes
-- Returns {{field, value, ...}, ...}, as many as were read; an empty one for a hash that is not there
local fields = tonumber(ARGV[3])
local room = tonumber(ARGV[1])
local found = {}

-- read(key): a hash as {field, value, ...}.
local function read(key)
  if fields == 0 then
    return redis.call('HGETALL', key)
  end
  local flat = {}
  for i, value in ipairs(redis.call('HMGET', key, unpack(ARGV, 4, 3 + fields))) do
    if value then
      flat[#flat + 1] = ARGV[3 + i]
      flat[#flat + 1] = value
    end
  end
  return flat
end

for i = 3 + fields, #ARGV do
  local flat = read(i == 3 + fields and KEYS[1] or ARGV[2] .. ARGV[i])
  found[#found + 1] = flat
  for _, text in ipairs(flat) do
    room = room - #text
  end
  if room <= 0 then
    break
  end
end
return found
