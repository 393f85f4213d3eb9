-- fact_key(s, p, o): how a fact is named in the hash of facts.
local function fact_key(s, p, o)
  return s .. '\31' .. p .. '\31' .. o
end

-- index_fact(prefix, s, p, o): put a fact into the indexes by subject, object and predicate.
local function index_fact(prefix, s, p, o)
  redis.call('SADD', prefix .. 'out:' .. s, p .. '\31' .. o)
  redis.call('SADD', prefix .. 'into:' .. o, s .. '\31' .. p)
  redis.call('ZADD', prefix .. 'by:' .. p, 0, s .. '\31' .. o)
  redis.call('ZADD', prefix .. 'subjects', 0, s)
end

-- unindex_fact(prefix, s, p, o): take a fact out of these indexes.
local function unindex_fact(prefix, s, p, o)
  redis.call('SREM', prefix .. 'out:' .. s, p .. '\31' .. o)
  redis.call('SREM', prefix .. 'into:' .. o, s .. '\31' .. p)
  redis.call('ZREM', prefix .. 'by:' .. p, s .. '\31' .. o)
  if redis.call('EXISTS', prefix .. 'out:' .. s) == 0 then
    redis.call('ZREM', prefix .. 'subjects', s)
  end
end

-- count_labels(prefix, s, p, o, by): count the facts that each label is in; the labels that are in none any more.
local function count_labels(prefix, s, p, o, by)
  local gone = {}
  for _, label in ipairs({s, p, o}) do
    if redis.call('HINCRBY', prefix .. 'labels', label, by) <= 0 then
      redis.call('HDEL', prefix .. 'labels', label)
      gone[label] = true
    end
  end
  return gone
end
