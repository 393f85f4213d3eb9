-- whole(text): the number that a text of digits is, if a counter can be that high; nil for anything else.
local function whole(text)
  local number = string.match(text or '', '^%d+$') and tonumber(text)
  return number and number < 2 ^ 53 and number or nil
end
