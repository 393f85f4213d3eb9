-- Set a plugin's value only if it still is what the caller read, and emit the plugin's news with it.
-- expected   JSON, or empty: absent
-- value      JSON
-- ttl        ms
-- plugin     its id
-- news       JSON: arrays of name, subject and text
-- Returns 1 or 0
-- Events  plugin.news
local state, events = unpack(KEYS)
local expected, value, ttl, plugin, news = unpack(ARGV)
-- @include emit
local current = redis.call('GET', state)
if (current or '') ~= expected then
  return 0
end
redis.call('SET', state, value, 'PX', ttl)
for _, one in ipairs(cjson.decode(news)) do
  emit('plugin.news', 'plugin', plugin, 'name', one[1], 'about', one[2], 'text', one[3])
end
return 1
