-- Add facts to a graph, in one step; one that is there already keeps the greater confidence (M11).
-- KEYS[1] facts      hash: subject, predicate, object to confidence and source
-- KEYS[2] meta       hash: revision
-- ARGV[1] prefix     of the graph's indexes; touches them (same slot)
-- ARGV[2] most       how many facts it may hold
-- ARGV[3] facts      how many of the following arguments are facts: subject, predicate, object, confidence, source,
--                    1 if it is knowledge and not about the agent, how many of the words after them all are its own
-- ARGV[4...] facts, then label, word, how many other words the label has, ... of their labels
-- Returns how many were new or surer than before, or -1 when the graph would be too large: nothing was added
-- @include graph
local after = 4 + ARGV[3]
local added, new = 0, 0
for i = 4, after - 1, 7 do
  if redis.call('HEXISTS', KEYS[1], fact_key(ARGV[i], ARGV[i + 1], ARGV[i + 2])) == 0 then
    new = new + 1
  end
end
if new > 0 and redis.call('HLEN', KEYS[1]) + new > tonumber(ARGV[2]) then
  return -1
end
local w = after
for i = 4, after - 1, 7 do
  local s, p, o, confidence, source = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local key = fact_key(s, p, o)
  local old = redis.call('HGET', KEYS[1], key)
  if not old or tonumber(confidence) > tonumber(string.match(old, '^%S+')) then
    redis.call('HSET', KEYS[1], key, confidence .. ' ' .. source)
    added = added + 1
  end
  if not old then
    index_fact(ARGV[1], s, p, o)
    if ARGV[i + 5] == '1' then
      count_labels(ARGV[1], s, p, o, 1)
      for j = w, w + ARGV[i + 6] - 1, 3 do
        redis.call('ZADD', ARGV[1] .. 'word:' .. ARGV[j + 1], ARGV[j + 2], ARGV[j])
      end
    end
  end
  w = w + ARGV[i + 6]
end
if added > 0 then
  redis.call('HINCRBY', KEYS[2], 'revision', 1)
end
return added
