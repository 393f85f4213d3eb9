-- Read a page of an index in one step, so that what comes and goes meanwhile neither repeats nor hides anything.
-- member     the last one seen, or empty: from the beginning
-- score      that it had
-- newest     1: highest score first
-- Returns {member, score, ...}
local index = unpack(KEYS)
local member, score, limit, newest = unpack(ARGV)
newest = newest == '1'
local range = newest and 'ZREVRANGE' or 'ZRANGE'

-- before(at): return true if an entry comes before the last one seen, in ascending order.
local function before(at)
  local other = tonumber(at[2])
  return other < score or (other == score and at[1] < member)
end

-- place(): count the entries before a member that has left the index, ties in order of members.
local function place()
  local low, high = 0, redis.call('ZCARD', index)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local at = redis.call(range, index, middle, middle, 'WITHSCORES')
    if before(at) ~= newest then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local start = 0
if member ~= '' then
  score = tonumber(score)
  local rank = redis.call(newest and 'ZREVRANK' or 'ZRANK', index, member)
  start = rank and rank + 1 or place()
end
return redis.call(range, index, start, start + limit - 1, 'WITHSCORES')
