-- Limit the targets that a record names, and the values of each param, to MOST.
local MOST = 20

-- add_value(list, value): add a value to a list that lacks it, unless that is full.
local function add_value(list, value)
  for _, other in ipairs(list) do
    if other == value then
      return
    end
  end
  if #list < MOST then
    list[#list + 1] = value
  end
end

-- widen(track, plan): have a record cover the targets and params of an effective execution.
local function widen(track, plan)
  local covers = track.covers or {parameter = plan.parameter, targets = {}, ranges = {}, values = {}}
  for _, target in ipairs(plan.targets or {}) do
    add_value(covers.targets, target)
  end
  for name, value in pairs(plan.params or {}) do
    if type(value) == 'number' then
      local range = covers.ranges[name] or {value, value}
      covers.ranges[name] = {math.min(range[1], value), math.max(range[2], value)}
    else
      covers.values[name] = covers.values[name] or {}
      add_value(covers.values[name], value)
    end
  end
  track.covers = covers
end
