-- whole_number(text): return a text of digits as a number; nil for other text, and for more than a counter can hold.
local function whole_number(text)
  local number = string.match(text or '', '^%d+$') and tonumber(text)
  return number and number < 2 ^ 53 and number or nil
end
