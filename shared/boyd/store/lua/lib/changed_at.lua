-- changed_at(mark): when a freeze mark was last changed, in ms; 0 without one.
local function changed_at(mark)
  return tonumber(string.match(mark or '', '^%d+')) or 0
end
