-- Count a request to a model, and its tokens (G7).
-- KEYS[1] usage      hash: running totals
-- ARGV[1] model
-- ARGV[2] others     what models count as that find no room
-- ARGV[3] room       how many fields there may be before another model finds none
-- ARGV[4] outcome
-- ARGV[5] input      tokens
-- ARGV[6] output     tokens
-- Returns the model that it counts for
local model = ARGV[1]
local known = redis.call('HEXISTS', KEYS[1], 'tokens input ' .. model) == 1
if not known and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  model = ARGV[2]
end
redis.call('HINCRBY', KEYS[1], 'requests ' .. ARGV[4] .. ' ' .. model, 1)
redis.call('HINCRBY', KEYS[1], 'tokens input ' .. model, ARGV[5])
redis.call('HINCRBY', KEYS[1], 'tokens output ' .. model, ARGV[6])
return model
