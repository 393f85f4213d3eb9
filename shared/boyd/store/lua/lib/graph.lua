-- @include keys
-- Uses graph, labels, subjects
-- fact_name(s, p, o): build the name of a fact in the hash of facts.
local function fact_name(s, p, o)
  return s .. '\31' .. p .. '\31' .. o
end

-- index_fact(s, p, o): put a fact into the indexes by subject, object and predicate.
local function index_fact(s, p, o)
  redis.call('SADD', key(graph .. ':out', s), p .. '\31' .. o)
  redis.call('SADD', key(graph .. ':into', o), s .. '\31' .. p)
  redis.call('ZADD', key(graph .. ':by', p), 0, s .. '\31' .. o)
  redis.call('ZADD', subjects, 0, s)
end

-- unindex_fact(s, p, o): remove a fact from these indexes.
local function unindex_fact(s, p, o)
  local out = key(graph .. ':out', s)
  redis.call('SREM', out, p .. '\31' .. o)
  redis.call('SREM', key(graph .. ':into', o), s .. '\31' .. p)
  redis.call('ZREM', key(graph .. ':by', p), s .. '\31' .. o)
  if redis.call('EXISTS', out) == 0 then
    redis.call('ZREM', subjects, s)
  end
end

-- count_labels(s, p, o, by): add *by* to the number of facts that each label is in; return the set of labels left in none.
local function count_labels(s, p, o, by)
  local gone = {}
  for _, label in ipairs({s, p, o}) do
    if redis.call('HINCRBY', labels, label, by) <= 0 then
      redis.call('HDEL', labels, label)
      gone[label] = true
    end
  end
  return gone
end
