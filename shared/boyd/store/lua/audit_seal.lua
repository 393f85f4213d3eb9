-- Move audit entries into the sealed chain, if it still ends where they were computed to follow (A15).
-- KEYS[1] open       stream: entries as the changes wrote them
-- KEYS[2] sealed     stream: the chain; an entry's number is its id
-- KEYS[3] head       hash: seq, hash, by of the last entry; trimmedSeq, trimmedHash, trimmedProof of the last removed
-- ARGV[1] expected   hash of the head they follow, or empty: there is none
-- ARGV[2] seq        of the last entry to remove by the cap, or empty: none
-- ARGV[3] hash       its hash
-- ARGV[4] proof      that a sealer chose it
-- ARGV[5...] entries  six each: seq, at (the id in the open stream), body, prev, by, hash
-- Returns 1, or 0: another sealer was quicker, nothing was done
if (redis.call('HGET', KEYS[3], 'hash') or '') ~= ARGV[1] then
  return 0
end
for i = 5, #ARGV, 6 do
  redis.call('XADD', KEYS[2], ARGV[i] .. '-0', 'seq', ARGV[i], 'at', ARGV[i + 1], 'body', ARGV[i + 2],
    'prev', ARGV[i + 3], 'by', ARGV[i + 4], 'hash', ARGV[i + 5])
  redis.call('XDEL', KEYS[1], ARGV[i + 1])
end
redis.call('HSET', KEYS[3], 'seq', ARGV[#ARGV - 5], 'by', ARGV[#ARGV - 1], 'hash', ARGV[#ARGV])
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[3], 'trimmedSeq', ARGV[2], 'trimmedHash', ARGV[3], 'trimmedProof', ARGV[4])
  redis.call('XTRIM', KEYS[2], 'MINID', string.format('%d', ARGV[2] + 1))
end
return 1
