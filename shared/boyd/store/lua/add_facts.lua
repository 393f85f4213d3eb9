-- Add facts to a graph, in one step; one that is there already keeps the greater confidence.
-- graph      what the keys of its indexes begin with, after the agent's
-- most       how many facts it may hold
-- given      arrays of subject, predicate, object, confidence, source, whether it is knowledge and not about the agent,
--            and its words: label, word, how many other words the label has, ...
-- Returns how many were new or surer than before, or -1 when the graph would be too large: nothing was added
local facts, meta, labels, subjects = unpack(KEYS)
local graph, most, given = unpack(ARGV)
-- @include expect graph
given = cjson.decode(given)
local added, new = 0, 0
for _, fact in ipairs(given) do
  local s, p, o, _, _, _, words = unpack(fact)
  if redis.call('HEXISTS', facts, fact_name(s, p, o)) == 0 then
    new = new + 1
    expect(key(graph .. ':out', s), 'set', key(graph .. ':into', o), 'set', key(graph .. ':by', p), 'zset')
    for i = 1, #words, 3 do
      expect(key(graph .. ':word', words[i + 1]), 'zset')
    end
  end
end
if new > 0 and redis.call('HLEN', facts) + new > tonumber(most) then
  return -1
end
expect(meta, 'hash', labels, 'hash', subjects, 'zset')
for _, fact in ipairs(given) do
  local s, p, o, confidence, source, knowledge, words = unpack(fact)
  local name = fact_name(s, p, o)
  local old = redis.call('HGET', facts, name)
  if not old or tonumber(confidence) > tonumber(string.match(old, '^%S+')) then
    redis.call('HSET', facts, name, confidence .. ' ' .. source)
    added = added + 1
  end
  if not old then
    index_fact(s, p, o)
    if knowledge then
      count_labels(s, p, o, 1)
      for i = 1, #words, 3 do
        redis.call('ZADD', key(graph .. ':word', words[i + 1]), words[i + 2], words[i])
      end
    end
  end
end
if added > 0 then
  redis.call('HINCRBY', meta, 'revision', 1)
end
return added
