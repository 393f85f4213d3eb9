-- names(list, name): whether *name* is among those in the space-separated *list*.
local function names(list, name)
  for each in string.gmatch(list or '', '%S+') do
    if each == name then
      return true
    end
  end
  return false
end
