-- key(kind, id): build a key of this agent, as `boyd.store.keys` does; no script builds one elsewhere. A job is named by
-- its kind and id, as in `call:<id>`, and key(name) is its hash.
local PREFIX = string.match(KEYS[1], '^.-}:')
local function key(kind, id)
  return PREFIX .. (id and kind .. ':' .. id or kind)
end
