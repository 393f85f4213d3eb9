"""The data of releases, which every later release has to read."""
