-- The version of the format in which this release writes hashes. It grows when an older release would misread them.
local FORMAT = 1

-- newer(version): the format version of a hash if a newer release has written it, or nil; absent it is 1. Such a hash is
-- left alone.
local function newer(version)
  version = tonumber(version or 1)
  return version and version > FORMAT and version or nil
end
