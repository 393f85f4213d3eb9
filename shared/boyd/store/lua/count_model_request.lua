-- Count a request to a model, its tokens, and what they cost.
-- others     what models count as that find no room
-- room       how many fields there may be before another model finds none
-- price      in millionths of the currency of the prices
-- Returns the model that it counts for
local usage = unpack(KEYS)
local model, others, room, outcome, input, output, price = unpack(ARGV)
local known = redis.call('HEXISTS', usage, 'tokens input ' .. model) == 1
if not known and redis.call('HLEN', usage) >= tonumber(room) then
  model = others
end
redis.call('HINCRBY', usage, 'requests ' .. outcome .. ' ' .. model, 1)
redis.call('HINCRBY', usage, 'tokens input ' .. model, input)
redis.call('HINCRBY', usage, 'tokens output ' .. model, output)
if price ~= '0' then
  redis.call('HINCRBY', usage, 'price ' .. model, price)
end
return model
