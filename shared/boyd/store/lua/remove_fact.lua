-- Remove a fact from a graph.
-- graph      what the keys of its indexes begin with, after the agent's
-- knowledge  1: it is knowledge and not about the agent
-- words      label, word, how many other words the label has, ... of its labels
-- Returns 1, or 0 when it is not there
local facts, meta, labels, subjects = unpack(KEYS)
local graph, s, p, o, knowledge = unpack(ARGV, 1, 5)
-- @include expect graph rest
local words = rest(6)
if redis.call('HEXISTS', facts, fact_name(s, p, o)) == 0 then
  return 0
end
expect(meta, 'hash', labels, 'hash', subjects, 'zset', key(graph .. ':out', s), 'set', key(graph .. ':into', o), 'set',
  key(graph .. ':by', p), 'zset')
for i = 1, #words, 3 do
  expect(key(graph .. ':word', words[i + 1]), 'zset')
end
redis.call('HDEL', facts, fact_name(s, p, o))
unindex_fact(s, p, o)
if knowledge == '1' then
  local gone = count_labels(s, p, o, -1)
  for i = 1, #words, 3 do
    if gone[words[i]] then
      redis.call('ZREM', key(graph .. ':word', words[i + 1]), words[i])
    end
  end
end
redis.call('HINCRBY', meta, 'revision', 1)
return 1
