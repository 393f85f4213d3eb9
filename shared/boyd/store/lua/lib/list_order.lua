-- list_order(key, due, name, at): make an order due, and list it among the open ones, from where `mend` makes it due
-- again if that is lost.
local function list_order(key, due, name, at)
  redis.call('ZADD', due, at, name)
  redis.pcall('SADD', string.sub(key, 1, -#name - 1) .. 'orders', name)
end

-- unlist_order(key, due, name): an order has ended.
local function unlist_order(key, due, name)
  redis.pcall('SREM', string.sub(key, 1, -#name - 1) .. 'orders', name)
  redis.call('ZREM', due, name)
end
