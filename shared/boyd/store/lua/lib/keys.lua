-- key(kind, id): a key of this agent, built as `boyd.store.keys` builds it; the scripts build none elsewhere. The name of
-- a job is its kind and id, as in `call:<id>`: key(name) is its hash.
local PREFIX = string.match(KEYS[1], '^.-}:')
local function key(kind, id)
  return PREFIX .. (id and kind .. ':' .. id or kind)
end
