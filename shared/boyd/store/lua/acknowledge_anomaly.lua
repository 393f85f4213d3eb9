-- Acknowledge an open anomaly, or release its acknowledgement, which is part of the anomaly and ends with it.
-- plugin     that sees it
-- symptom    what it is, in one line
-- change     by, name and note of the principal, ms until it lapses, if it does; release: end the acknowledgement
-- actor      for the audit
-- Returns 'done', 'unchanged' or 'not-open'
-- Events  anomaly.acknowledged, anomaly.released
local symptoms, held_actions, events, audit_open = unpack(KEYS)
local plugin, symptom, change, actor = unpack(ARGV)
-- @include acknowledgement audit emit expect symptoms
local sight = read_sight()
local anomaly
for _, row in ipairs(sight.open or {}) do
  if row[1] == plugin and row[2] == symptom then
    anomaly = row
  end
end
if not anomaly then
  return 'not-open'
end
change = cjson.decode(change)
local changed = change_acknowledgement(anomaly[8], change)
if not changed then
  return 'unchanged'
end
expect(audit_open, 'stream')
local kind = change.release and 'anomaly.released' or 'anomaly.acknowledged'
audit(kind, 'plugin', plugin, 'anomaly', symptom, 'until', changed['until'], 'note', change.note,
  unpack(cjson.decode(actor)))
anomaly[8] = changed
redis.call('SET', symptoms, cjson.encode(sight), 'PX', 2592000000)
emit(kind, 'plugin', plugin, 'anomaly', symptom, 'by', change.by)
return 'done'
