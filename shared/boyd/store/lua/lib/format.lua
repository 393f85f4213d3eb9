-- Define the version of the format in which this release writes hashes. It grows when an older release would misread them.
local FORMAT = 1

-- newer(version): return the format version of a hash if a newer release has written it, else nil; without a version it is
-- 1. Callers leave such a hash alone.
local function newer(version)
  version = tonumber(version or 1)
  return version and version > FORMAT and version or nil
end
