-- put_in_order(index, at, id): add *id* to an index by time, in milliseconds, behind all that it has at that time. Each member
-- gets a score of its own, in steps of 1/1024 ms, so that the order is total; the archive orders by the same scores.
local function put_in_order(index, at, id)
  -- Ten times as far as a thousand members of one millisecond reach.
  local last = redis.call('ZRANGE', index, at + 9, at, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  redis.call('ZADD', index, last and string.format('%.17g', last + 1 / 1024) or at, id)
end
