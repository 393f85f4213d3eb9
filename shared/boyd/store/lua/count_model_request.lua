-- Count a request to a model, and its tokens.
-- others     what models count as that find no room
-- room       how many fields there may be before another model finds none
-- Returns the model that it counts for
local usage = unpack(KEYS)
local model, others, room, outcome, input, output = unpack(ARGV)
local known = redis.call('HEXISTS', usage, 'tokens input ' .. model) == 1
if not known and redis.call('HLEN', usage) >= tonumber(room) then
  model = others
end
redis.call('HINCRBY', usage, 'requests ' .. outcome .. ' ' .. model, 1)
redis.call('HINCRBY', usage, 'tokens input ' .. model, input)
redis.call('HINCRBY', usage, 'tokens output ' .. model, output)
return model
