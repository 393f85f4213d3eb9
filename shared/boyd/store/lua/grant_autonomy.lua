-- Let an action run alone in a class of situation, if a worker still holds the job of the approval, and the record has
-- neither been withdrawn from nor forgotten since it was read. A repetition changes nothing.
-- attempt    of the job
-- worker     as it entered
-- withdrawn  the number of withdrawals that were read
-- lasts      ms until the grant ends by itself
-- grant      JSON: its id, at_least and by
-- Returns 1; 0 when it was granted by the same approval before and has ended, or the job or the record is another one
-- Events  autonomy.granted
local job, loop, events, audit_open = unpack(KEYS)
local attempt, worker, action, class, withdrawn, lasts, grant = unpack(ARGV)
-- @include audit emit executes expect track
local track = read_track(action, class)
if not executes(job, attempt, worker) or not track or number(track, 'withdrawn') ~= tonumber(withdrawn) then
  return 0
end
grant = cjson.decode(grant)
if track.lastGrant == grant.id then
  return track.grant and 1 or 0
end
expect(audit_open, 'stream', loop, 'hash', track_key(action), 'hash')
local now = now_ms()
-- It begins with one execution in flight, see `widen_grant`.
grant.since, grant['until'], grant.inFlight, grant.proven = now, now + tonumber(lasts), 1, 0
track.grant, track.lastGrant, track.ended, track.endedBy = grant, grant.id, nil, nil
audit('autonomy.granted', 'action', action, 'situation', class, 'grant', grant.id, 'after', 'granted',
  'who', table.concat(grant.by, ' '))
write_track(action, class, track)
redis.call('HINCRBY', loop, 'autonomy:granted', 1)
emit('autonomy.granted', 'action', action, 'situation', track.label or '', 'approval', grant.id)
return 1
