-- @include expect keys place_job rest server wake
-- Begin the targets of a step, a few at a time. The step's id is `<procedure>:<step>`, and a target's member has its number
-- in five digits. `wave-states` is a sorted set whose scores are states: 0 pending, 1 running, 2 asked, 3 verifying, 4 done,
-- 5 skipped, 6 failed, 7 not effective, 8 worse, 9 unknown; 10 undoing, 11 undo asked, 12 undone, 13 left, 14 stuck. `wave-targets`
-- and `wave-details` are hashes by member. `wave` has limits: `limit` is the number of targets in the waves that were begun.

-- expect_wave(id): raise an error unless the keys of a step have the right types.
local function expect_wave(id)
  expect(key('wave', id), 'hash', key('wave-states', id), 'zset', key('wave-targets', id), 'hash',
    key('wave-details', id), 'hash')
end

-- set_states(id, members, state): set the state of many targets.
local function set_states(id, members, state)
  for i = 1, #members, 1000 do
    local scores = {}
    for at = i, math.min(i + 999, #members) do
      scores[#scores + 1] = state
      scores[#scores + 1] = members[at]
    end
    redis.call('ZADD', key('wave-states', id), unpack(scores))
  end
end

-- add_targets(id, items): store the targets of a step, in order; *items* are JSON.
local function add_targets(id, items)
  local members, fields = {}, {}
  for number, item in ipairs(items) do
    members[number] = string.format('%05d', number - 1)
    fields[2 * number - 1], fields[2 * number] = members[number], item
  end
  set_states(id, members, 0)
  store(key('wave-targets', id), fields)
end

-- count_states(id, from, to): count the targets in these states.
local function count_states(id, from, to)
  return redis.call('ZCOUNT', key('wave-states', id), from, to)
end

-- busy(id): return the number of targets that are at work, or wait for a person or a verdict.
local function busy(id)
  return count_states(id, 1, 3) + count_states(id, 10, 11)
end

-- halt_wave(id, why): begin no other target, and none that no worker has begun yet.
local function halt_wave(id, why)
  local wave = key('wave', id)
  if redis.call('HSETNX', wave, 'halted', why) == 0 then
    return
  end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key('wave-states', id), 1, 3)) do
    local name = 'target:' .. id .. '@' .. tonumber(member)
    if redis.call('TYPE', key(name)).ok == 'hash' then
      redis.call('HSET', key(name), 'cancelled', 1)
      wake(name)
    end
  end
end

-- stop_reason(id, wave): return why no other target may be begun, or nil.
local function stop_reason(id, wave)
  if wave.halted then
    return wave.halted
  end
  if wave.server ~= server_id() and wave.idempotent ~= '1' then
    return 'Redis restarted and may have forgotten what was executed'
  end
  if wave.mode == 'back' then
    return nil
  end
  local failed, harmed = count_states(id, 6, 9), count_states(id, 8, 8)
  if harmed > tonumber(wave.pardonedHarm) then
    return 'a target became worse'
  end
  if failed - wave.pardoned >= tonumber(wave.stopAt) then
    return 'stop_at = ' .. wave.stopAt .. ' is reached'
  end
end

-- next_targets(id, wave, room): return at most *room* members: the first pending ones, or the last that are not undone.
local function next_targets(id, wave, room)
  local states, members = key('wave-states', id), {}
  if wave.mode == 'forth' then
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', states, 0, 0, 'LIMIT', 0, room)) do
      if tonumber(member) < tonumber(wave.limit) then
        members[#members + 1] = member
      end
    end
    return members
  end
  for _, state in ipairs({8, 7, 4}) do
    local last = redis.call('ZRANGE', states, state, state, 'BYSCORE', 'REV', 'LIMIT', 0, room - #members)
    for _, member in ipairs(last) do
      members[#members + 1] = member
    end
  end
  return members
end

-- expect_targets(id, mode, limit, room): raise an error unless the jobs of so many next targets could be placed.
local function expect_targets(id, mode, limit, room)
  for _, member in ipairs(next_targets(id, {mode = mode, limit = limit}, room)) do
    expect(key('target:' .. id .. '@' .. tonumber(member)), 'hash')
  end
end

-- begin_targets(id): begin as many targets as the limits allow; return the names of their jobs.
local function begin_targets(id)
  local names, have = {}, redis.call('HMGET', key('wave', id), 'mode', 'limit', 'atOnce', 'stopAt', 'queue', 'halted', 'server',
    'idempotent', 'pardoned', 'pardonedHarm', 'tries', 'undoTries')
  local wave = {mode = have[1], limit = have[2], stopAt = have[4], halted = have[6], server = have[7], idempotent = have[8],
    pardoned = have[9], pardonedHarm = have[10]}
  local why = stop_reason(id, wave)
  if why then
    halt_wave(id, why)
    return names
  end
  local room = tonumber(have[3]) - busy(id)
  local members = room > 0 and next_targets(id, wave, room) or {}
  local tries = wave.mode == 'forth' and have[11] or have[12]
  for _, member in ipairs(members) do
    local name = 'target:' .. id .. '@' .. tonumber(member)
    -- What its last job has left, if the end of that was lost: it may have been cancelled.
    redis.call('DEL', key(name))
    place_job(name, have[5], 0)
    -- What Redis may have forgotten since the step began is not executed again.
    redis.call('HSET', key(name), 'server', wave.server)
    if tries and redis.call('HEXISTS', key('wave-details', id), member) == 1 then
      redis.call('HSET', key(name), 'tries', tries)
    end
    names[#names + 1] = name
  end
  set_states(id, members, wave.mode == 'forth' and 1 or 10)
  return names
end
