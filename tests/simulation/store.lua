-- Keep the data of a simulated Redis, and run its commands: those that scripts and stores use. Its time is set from outside.
local data, now_us, run_id = {}, 0, ''
-- What each script or command has replaced, the newest last, and when, by another clock that never steps; nil: no replica
-- is going to take over that lacks the last ones.
local journal, journal_at

local function fail(text)
  error({err = text}, 0)
end
local function text_of(value)
  if type(value) ~= 'number' then
    return value
  end
  return value == math.floor(value) and math.abs(value) < 1e17 and string.format('%.0f', value) or string.format('%.17g', value)
end
local function number_of(text)
  if text == '+inf' or text == 'inf' then
    return math.huge
  elseif text == '-inf' then
    return -math.huge
  end
  return tonumber(text) or fail('ERR value is not a valid float')
end
local function score_text(score)
  return score == math.huge and 'inf' or score == -math.huge and '-inf' or text_of(score)
end
-- entry(key, kind, make): return what a key holds, or nil; with make, a new one in place of nothing.
local function entry(key, kind, make)
  local held = data[key]
  if held and held.until_us and held.until_us <= now_us then
    data[key], held = nil, nil
  end
  if held and kind and held.kind ~= kind then
    fail('WRONGTYPE Operation against a key holding the wrong kind of value')
  elseif not held and make then
    held = {kind = kind, items = {}, n = 0}
    data[key] = held
  end
  return held
end
local function drop_if_empty(key, held)
  if held and held.n == 0 then
    data[key] = nil
  end
end
-- put(held, name, value): set a field of a hash or a set, or a member of a sorted set; return whether it is new.
local function put(held, name, value)
  local new = held.items[name] == nil
  held.items[name] = value
  held.order = nil
  if new then
    held.n = held.n + 1
  end
  return new
end
local function take(key, kind, names)
  local held, count = entry(key, kind), 0
  for _, name in ipairs(held and names or {}) do
    if held.items[name] ~= nil then
      held.items[name], held.order, held.n, count = nil, nil, held.n - 1, count + 1
    end
  end
  drop_if_empty(key, held)
  return count
end
-- sorted(key): return the members of a sorted set, or the names in a hash or set, in order, and what holds them.
local function sorted(key, kind)
  local held = entry(key, kind)
  if not held then
    return {}, nil
  end
  if not held.order then
    local order, items = {}, held.items
    for name in pairs(items) do
      order[#order + 1] = name
    end
    table.sort(order, function(a, b)
      if kind == 'zset' and items[a] ~= items[b] then
        return items[a] < items[b]
      end
      return a < b
    end)
    held.order = order
  end
  return held.order, held
end
-- bound(text): return a score and whether it is itself outside.
local function bound(text)
  if string.sub(text, 1, 1) == '(' then
    return number_of(string.sub(text, 2)), true
  end
  return number_of(text), false
end
local function within(score, low, above, high, below)
  return (score > low or score == low and not above) and (score < high or score == high and not below)
end
local function by_score(key, low, high)
  local order, held = sorted(key, 'zset')
  local found, min, above = {}, bound(low)
  local max, below = bound(high)
  for _, member in ipairs(order) do
    if within(held.items[member], min, above, max, below) then
      found[#found + 1] = member
    end
  end
  return found, held
end
local function reversed(list)
  local back = {}
  for i = #list, 1, -1 do
    back[#back + 1] = list[i]
  end
  return back
end
-- slice(list, first, last): return a part of a list by positions from 0; negative ones count from the end.
local function slice(list, first, last)
  first, last = tonumber(first), tonumber(last)
  first = first < 0 and math.max(0, #list + first) or first
  last = last < 0 and #list + last or last
  local part = {}
  for i = first + 1, math.min(last + 1, #list) do
    part[#part + 1] = list[i]
  end
  return part
end
local function with_scores(members, held, wanted)
  if not wanted then
    return members
  end
  local list = {}
  for _, member in ipairs(members) do
    list[#list + 1] = member
    list[#list + 1] = score_text(held.items[member])
  end
  return list
end
-- options_of(args, first): return the words among the arguments from *first* on, with the position after each.
local function options_of(args, first)
  local options = {}
  for i = first, #args do
    options[string.upper(args[i])] = i + 1
  end
  return options
end
local function limited(members, args, options)
  local at = options.LIMIT
  if not at then
    return members
  end
  local skip, count = tonumber(args[at]), tonumber(args[at + 1])
  return count == 0 and {} or slice(members, skip, count < 0 and -1 or skip + count - 1)
end
local function range(key, args, back)
  local options = options_of(args, 4)
  back = back or options.REV
  local members, held
  if options.BYSCORE then
    members, held = by_score(key, args[back and 3 or 2], args[back and 2 or 3])
    members = limited(back and reversed(members) or members, args, options)
  else
    members, held = sorted(key, 'zset')
    members = slice(back and reversed(members) or members, args[2], args[3])
  end
  return with_scores(members, held, options.WITHSCORES)
end
-- position(text, ms, seq): return the two numbers of a stream's id; ms and seq stand for what it leaves out.
local function position(text, ms, seq)
  if text == '-' then
    return 0, 0, false
  elseif text == '+' then
    return math.huge, math.huge, false
  end
  local outside = string.sub(text, 1, 1) == '('
  local a, b = string.match(text, '^%(?(%d+)%-?(%d*)$')
  return tonumber(a) or ms, tonumber(b) or seq, outside
end
local function before(ms, seq, other_ms, other_seq)
  return ms < other_ms or ms == other_ms and seq < other_seq
end
local function stream_range(key, first, last, count, back)
  local held, found = entry(key, 'stream'), {}
  local ms, seq, outside = position(first, 0, 0)
  local to_ms, to_seq, open = position(last, math.huge, math.huge)
  for _, item in ipairs(held and held.items or {}) do
    local early = before(item.ms, item.seq, ms, seq) or outside and item.ms == ms and item.seq == seq
    local late = before(to_ms, to_seq, item.ms, item.seq) or open and item.ms == to_ms and item.seq == to_seq
    if not early and not late then
      found[#found + 1] = {item.id, item.fields}
    end
  end
  found = back and reversed(found) or found
  return count and slice(found, 0, count - 1) or found
end
local function trim(held, args, at)
  local word = string.upper(args[at])
  at = (args[at + 1] == '~' or args[at + 1] == '=') and at + 2 or at + 1
  local gone, ms, seq = 0, position(args[at], 0, 0)
  while held.n > 0 and (word == 'MAXLEN' and held.n > tonumber(args[at])
      or word == 'MINID' and before(held.items[1].ms, held.items[1].seq, ms, seq or 0)) do
    table.remove(held.items, 1)
    held.n, gone = held.n - 1, gone + 1
  end
  return gone, at + 1
end
local function rest(args, first)
  local list = {}
  for i = first, #args do
    list[#list + 1] = args[i]
  end
  return list
end

local commands = {}
function commands.PING()
  return {ok = 'PONG'}
end
function commands.TIME()
  return {text_of(math.floor(now_us / 1e6)), text_of(now_us % 1e6)}
end
function commands.INFO()
  return 'run_id:' .. run_id .. '\r\n'
end
function commands.TYPE(args)
  local held = entry(args[1])
  return {ok = held and held.kind or 'none'}
end
function commands.EXISTS(args)
  local count = 0
  for _, key in ipairs(args) do
    count = count + (entry(key) and 1 or 0)
  end
  return count
end
function commands.DEL(args)
  local count = commands.EXISTS(args)
  for _, key in ipairs(args) do
    data[key] = nil
  end
  return count
end
function commands.RENAME(args)
  local held = entry(args[1]) or fail('ERR no such key')
  data[args[1]] = nil
  data[args[2]] = held
  return {ok = 'OK'}
end
function commands.PEXPIRE(args)
  local held, ms = entry(args[1]), number_of(args[2])
  if held then
    held.until_us = now_us + ms * 1000
    entry(args[1])
  end
  return held and 1 or 0
end
function commands.EXPIRE(args)
  return commands.PEXPIRE({args[1], text_of(number_of(args[2]) * 1000)})
end
function commands.PERSIST(args)
  local held = entry(args[1])
  local had = held and held.until_us
  if had then
    held.until_us = nil
  end
  return had and 1 or 0
end
function commands.GET(args)
  local held = entry(args[1], 'string')
  return held and held.items or false
end
function commands.SET(args)
  local options, held = options_of(args, 3), entry(args[1])
  if options.NX and held or options.XX and not held then
    return false
  end
  local ms = options.PX and number_of(args[options.PX]) or options.EX and number_of(args[options.EX]) * 1000
  data[args[1]] = {kind = 'string', items = args[2], n = 1, until_us = ms and now_us + ms * 1000}
  return {ok = 'OK'}
end
function commands.HSET(args)
  local held, count = entry(args[1], 'hash', true), 0
  for i = 2, #args, 2 do
    count = count + (put(held, args[i], args[i + 1] or fail('ERR wrong number of arguments')) and 1 or 0)
  end
  return count
end
function commands.HSETNX(args)
  local held = entry(args[1], 'hash', true)
  return held.items[args[2]] == nil and put(held, args[2], args[3]) and 1 or 0
end
function commands.HGET(args)
  local held = entry(args[1], 'hash')
  return held and held.items[args[2]] or false
end
function commands.HMGET(args)
  local held, list = entry(args[1], 'hash'), {}
  for i = 2, #args do
    list[i - 1] = held and held.items[args[i]] or false
  end
  return list
end
function commands.HGETALL(args)
  local names, held = sorted(args[1], 'hash')
  local list = {}
  for _, name in ipairs(names) do
    list[#list + 1] = name
    list[#list + 1] = held.items[name]
  end
  return list
end
function commands.HKEYS(args)
  return rest(sorted(args[1], 'hash'), 1)
end
function commands.HVALS(args)
  local names, held = sorted(args[1], 'hash')
  local list = {}
  for i, name in ipairs(names) do
    list[i] = held.items[name]
  end
  return list
end
function commands.HEXISTS(args)
  return commands.HGET(args) and 1 or 0
end
function commands.HDEL(args)
  return take(args[1], 'hash', rest(args, 2))
end
function commands.HINCRBY(args)
  local held = entry(args[1], 'hash', true)
  local sum = number_of(held.items[args[2]] or '0') + number_of(args[3])
  put(held, args[2], text_of(sum))
  return sum
end
function commands.SADD(args)
  local held, count = entry(args[1], 'set', true), 0
  for i = 2, #args do
    count = count + (put(held, args[i], true) and 1 or 0)
  end
  return count
end
function commands.SREM(args)
  return take(args[1], 'set', rest(args, 2))
end
function commands.LRANGE(args)
  local held = entry(args[1], 'list')
  return slice(held and held.items or {}, args[2], args[3])
end
for name, kind in pairs({HLEN = 'hash', SCARD = 'set', ZCARD = 'zset', LLEN = 'list', XLEN = 'stream'}) do
  commands[name] = function(args)
    local held = entry(args[1], kind)
    return held and held.n or 0
  end
end
function commands.ZADD(args)
  local options, first, count = {}, 2, 0
  while args[first] == 'XX' or args[first] == 'NX' do
    options[args[first]] = true
    first = first + 1
  end
  for i = first, #args, 2 do
    local held = entry(args[1], 'zset', not options.XX)
    local old = held and held.items[args[i + 1]]
    if held and not (options.XX and not old) and not (options.NX and old) then
      count = count + (put(held, args[i + 1], number_of(args[i])) and 1 or 0)
    end
  end
  return count
end
function commands.ZREM(args)
  return take(args[1], 'zset', rest(args, 2))
end
function commands.ZSCORE(args)
  local held = entry(args[1], 'zset')
  local score = held and held.items[args[2]]
  return score and score_text(score) or false
end
function commands.ZMSCORE(args)
  local list = {}
  for i = 2, #args do
    list[i - 1] = commands.ZSCORE({args[1], args[i]})
  end
  return list
end
function commands.ZRANGE(args)
  return range(args[1], args)
end
function commands.ZREVRANGE(args)
  return range(args[1], args, true)
end
function commands.ZRANGEBYSCORE(args)
  local options = options_of(args, 4)
  local members, held = by_score(args[1], args[2], args[3])
  return with_scores(limited(members, args, options), held, options.WITHSCORES)
end
function commands.ZCOUNT(args)
  return #by_score(args[1], args[2], args[3])
end
function commands.ZREMRANGEBYSCORE(args)
  return take(args[1], 'zset', (by_score(args[1], args[2], args[3])))
end
function commands.XADD(args)
  local held, at = entry(args[1], 'stream', true), 2
  local trims = string.match(args[at], '^[A-Z]') and at
  if trims then
    at = (args[at + 1] == '~' or args[at + 1] == '=') and at + 3 or at + 2
  end
  local last_ms, last_seq = held.last_ms or 0, held.last_seq or 0
  local ms, seq
  if args[at] == '*' then
    ms, seq = math.max(last_ms, math.floor(now_us / 1000)), 0
    seq = ms == last_ms and last_seq + 1 or 0
  else
    ms, seq = position(args[at], 0, 0)
    if not before(last_ms, last_seq, ms, seq) then
      fail('ERR The ID specified in XADD is equal or smaller than the target stream top item')
    end
  end
  local id = text_of(ms) .. '-' .. text_of(seq)
  held.last_ms, held.last_seq, held.n = ms, seq, held.n + 1
  held.items[held.n] = {id = id, ms = ms, seq = seq, fields = rest(args, at + 1)}
  if trims then
    trim(held, args, trims)
  end
  return id
end
function commands.XDEL(args)
  local held, count = entry(args[1], 'stream'), 0
  for i = 2, #args do
    for at, item in ipairs(held and held.items or {}) do
      if item.id == args[i] then
        table.remove(held.items, at)
        held.n, count = held.n - 1, count + 1
        break
      end
    end
  end
  return count
end
function commands.XTRIM(args)
  local held = entry(args[1], 'stream')
  return held and trim(held, args, 2) or 0
end
function commands.XRANGE(args)
  return stream_range(args[1], args[2], args[3], tonumber(args[5]))
end
function commands.XREVRANGE(args)
  return stream_range(args[1], args[3], args[2], tonumber(args[5]), true)
end

function commands.XREAD(args)
  local options, grown = options_of(args, 1), {}
  local first = options.STREAMS
  local streams = (#args - first + 1) / 2
  for i = first, first + streams - 1 do
    local items = stream_range(args[i], '(' .. args[i + streams], '+', tonumber(args[options.COUNT]))
    if #items > 0 then
      grown[#grown + 1] = {args[i], items}
    end
  end
  return #grown > 0 and grown
end

local WRITES = {DEL = 1e9, RENAME = 2, PEXPIRE = 1, EXPIRE = 1, PERSIST = 1, SET = 1, HSET = 1, HSETNX = 1, HDEL = 1,
  HINCRBY = 1, SADD = 1, SREM = 1, ZADD = 1, ZREM = 1, ZREMRANGEBYSCORE = 1, XADD = 1, XDEL = 1, XTRIM = 1}
local function copy_of(held)
  local copy = {}
  for name, value in pairs(held) do
    copy[name] = value
  end
  if type(held.items) == 'table' then
    copy.items = {}
    for name, value in pairs(held.items) do
      copy.items[name] = value
    end
  end
  return copy
end
-- note(name, args): write into the journal what a command is going to replace.
local function note(name, args)
  local replaced = journal[#journal].replaced
  for i = 1, math.min(WRITES[name] or 0, #args) do
    if replaced[args[i]] == nil then
      replaced[args[i]] = data[args[i]] and copy_of(data[args[i]]) or false
    end
  end
end
-- begin(): begin a script or command, of which a replica has all that it writes or nothing.
local function begin()
  if journal then
    journal[#journal + 1] = {at = journal_at, replaced = {}}
  end
end
local function run(name, args)
  for i = 1, #args do
    args[i] = text_of(args[i])
  end
  if journal then
    note(string.upper(name), args)
  end
  local command = commands[string.upper(name)] or fail('ERR unknown command ' .. name)
  return command(args)
end
redis = {
  call = function(name, ...)
    return run(name, {...})
  end,
  pcall = function(name, ...)
    local done, reply = pcall(run, name, {...})
    return done and reply or type(reply) == 'table' and reply or {err = tostring(reply)}
  end,
  error_reply = function(text)
    return {err = text}
  end,
  status_reply = function(text)
    return {ok = text}
  end,
}

local scripts = {}
-- guarded(work, ...): return the reply, or a table with the error.
local function guarded(work, ...)
  local done, reply = pcall(work, ...)
  if done then
    return reply
  end
  return type(reply) == 'table' and reply or {err = 'ERR ' .. tostring(reply)}
end
return {
  reset = function(id, journals)
    data, now_us, run_id, journal = {}, 0, id, journals and {} or nil
  end,
  -- Let a replica take over that lacks so many writes; return when the first of these was.
  fail_over = function(id, lost)
    local since
    while lost > 0 and #journal > 0 do
      local last = table.remove(journal)
      for key, held in pairs(last.replaced) do
        data[key] = held or nil
      end
      if next(last.replaced) then
        lost, since = lost - 1, last.at
      end
    end
    run_id = id
    return since
  end,
  load = function(digest, source)
    scripts[digest] = assert(loadstring(source, '=' .. digest))
  end,
  at = function(us, seconds)
    now_us, journal_at = us, seconds
  end,
  command = function(name, ...)
    begin()
    return guarded(run, name, {...})
  end,
  script = function(digest, count, ...)
    local given = {...}
    KEYS, ARGV = {}, {}
    for i = 1, count do
      KEYS[i] = given[i]
    end
    for i = count + 1, #given do
      ARGV[i - count] = given[i]
    end
    begin()
    return guarded(scripts[digest])
  end,
  list = function(reply)
    return #reply, unpack(reply)
  end,
}
