-- Move audit entries into the sealed chain, if it still ends where they were computed to follow.
-- expected   hash of the head they follow, or empty: there is none
-- cut_seq    of the last entry to remove by the cap, or empty: none
-- cut_hash   its hash
-- cut_proof  that a sealer chose it
-- kinds      JSON: how many entries there are of each kind that is counted
-- entries    six each: seq, at (the id in the open stream), body, prev, by, hash
-- Returns 1, or 0: another sealer was quicker, nothing was done
local audit_open, audit, audit_head = unpack(KEYS)
local expected, cut_seq, cut_hash, cut_proof, kinds = unpack(ARGV, 1, 5)
-- @include expect rest
local entries = rest(6)
if (redis.call('HGET', audit_head, 'hash') or '') ~= expected then
  return 0
end
expect(audit_open, 'stream', audit, 'stream')
for kind, count in pairs(cjson.decode(kinds)) do
  redis.call('HINCRBY', audit_head, 'of:' .. kind, count)
end
for i = 1, #entries, 6 do
  local seq, at, body, prev, by, hash = unpack(entries, i, i + 5)
  redis.call('XADD', audit, seq .. '-0', 'seq', seq, 'at', at, 'body', body, 'prev', prev, 'by', by, 'hash', hash)
  redis.call('XDEL', audit_open, at)
end
redis.call('HSET', audit_head, 'seq', entries[#entries - 5], 'by', entries[#entries - 1], 'hash', entries[#entries])
if cut_seq ~= '' then
  redis.call('HSET', audit_head, 'trimmedSeq', cut_seq, 'trimmedHash', cut_hash, 'trimmedProof', cut_proof)
  redis.call('XTRIM', audit, 'MINID', string.format('%d', cut_seq + 1))
end
return 1
