-- has_name(list, name): return true if *name* is in the space-separated *list*.
local function has_name(list, name)
  for each in string.gmatch(list or '', '%S+') do
    if each == name then
      return true
    end
  end
  return false
end
