-- Read a page of an index in one step, so that what comes and goes meanwhile neither repeats nor hides anything.
-- KEYS[1] index      zset
-- ARGV[1] member     the last one seen, or empty: from the beginning
-- ARGV[2] score      that it had
-- ARGV[3] limit
-- ARGV[4] newest     1: highest score first
-- Returns {member, score, ...}
local newest = ARGV[4] == '1'
local range = newest and 'ZREVRANGE' or 'ZRANGE'

-- before(at, member, score): whether an entry comes before that place in ascending job.
local function before(at, member, score)
  local other = tonumber(at[2])
  return other < score or (other == score and at[1] < member)
end

-- place(member, score): how many entries come before a member that has left the index, ties in order of members.
local function place(member, score)
  local low, high = 0, redis.call('ZCARD', KEYS[1])
  while low < high do
    local middle = math.floor((low + high) / 2)
    local at = redis.call(range, KEYS[1], middle, middle, 'WITHSCORES')
    if before(at, member, score) ~= newest then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local start = 0
if ARGV[1] ~= '' then
  local rank = redis.call(newest and 'ZREVRANK' or 'ZRANK', KEYS[1], ARGV[1])
  start = rank and rank + 1 or place(ARGV[1], tonumber(ARGV[2]))
end
return redis.call(range, KEYS[1], start, start + ARGV[3] - 1, 'WITHSCORES')
