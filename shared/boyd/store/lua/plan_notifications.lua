-- Plan the notifications of a stage of an approval, each as a job of its own. One that is planned already stays as it is.
-- id         of the approval
-- planned    objects: name, record (JSON), wait (ms until it may be sent)
-- obsolete   names of earlier notifications that need not wait any longer, because these replace them
-- Returns names of the jobs whose messages the caller sends now
local approval, due = unpack(KEYS)
local id, resend_after, planned, obsolete = unpack(ARGV)
-- @include expect place_job put_off wake
local send, earlier = {}, {}
if redis.call('HEXISTS', approval, 'status') == 0 then
  return send
end
for _, name in ipairs(cjson.decode(obsolete)) do
  local job = key('delivery', id .. ':' .. name)
  expect(job, 'hash')
  if redis.call('HEXISTS', job, 'executionNotBefore') == 1 then
    earlier[#earlier + 1] = 'delivery:' .. id .. ':' .. name
  end
end
planned = cjson.decode(planned)
expect(due, 'zset')
for _, one in ipairs(planned) do
  expect(key('delivery', id .. ':' .. one.name), 'hash')
end
for _, one in ipairs(planned) do
  local job, field = 'delivery:' .. id .. ':' .. one.name, 'notified:' .. one.name
  if redis.call('HEXISTS', approval, field) == 0 then
    place_job(job, 'callback', resend_after)
    if one.wait > 0 then
      put_off(job, one.wait)
    else
      send[#send + 1] = job
    end
    redis.call('HSET', approval, field, one.record)
  end
end
for _, job in ipairs(earlier) do
  wake(job)
end
return send
