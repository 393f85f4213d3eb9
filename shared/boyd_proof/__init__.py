"""Proof: how well an agent detects, scored against labels, at other settings too."""
