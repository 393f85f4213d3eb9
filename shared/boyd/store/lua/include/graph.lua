-- fact_key(s, p, o): how a fact is named in the hash of facts.
local function fact_key(s, p, o)
  return s .. '\31' .. p .. '\31' .. o
end

-- index_fact(command, prefix, s, p, o): put a fact into the indexes by subject, object and predicate, or take it out.
local function index_fact(command, prefix, s, p, o)
  redis.call(command, prefix .. 'out:' .. s, p .. '\31' .. o)
  redis.call(command, prefix .. 'into:' .. o, s .. '\31' .. p)
  redis.call(command, prefix .. 'by:' .. p, s .. '\31' .. o)
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
