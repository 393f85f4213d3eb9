-- rest(first): return the arguments from number *first* on; there may be more of them than `unpack` takes.
local function rest(first)
  local list = {}
  for i = first, #ARGV do
    list[#list + 1] = ARGV[i]
  end
  return list
end

-- store(hash, fields): set field, value, ... of a hash.
local function store(hash, fields)
  for i = 1, #fields, 1000 do
    redis.call('HSET', hash, unpack(fields, i, math.min(i + 999, #fields)))
  end
end
