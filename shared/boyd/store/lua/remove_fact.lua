-- Remove a fact from a graph.
-- KEYS[1] facts      hash: subject, predicate, object to confidence and source
-- KEYS[2] meta       hash: revision
-- ARGV[1] prefix     of the graph's indexes; touches them (same slot)
-- ARGV[2] subject
-- ARGV[3] predicate
-- ARGV[4] object
-- ARGV[5] knowledge  1: it is knowledge and not about the agent
-- ARGV[6...] label, word, how many other words the label has, ... of its labels
-- Returns 1, or 0 when it is not there
-- @include graph
if redis.call('HDEL', KEYS[1], fact_key(ARGV[2], ARGV[3], ARGV[4])) == 0 then
  return 0
end
unindex_fact(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if ARGV[5] == '1' then
  local gone = count_labels(ARGV[1], ARGV[2], ARGV[3], ARGV[4], -1)
  for i = 6, #ARGV, 3 do
    if gone[ARGV[i]] then
      redis.call('ZREM', ARGV[1] .. 'word:' .. ARGV[i + 1], ARGV[i])
    end
  end
end
redis.call('HINCRBY', KEYS[2], 'revision', 1)
return 1
