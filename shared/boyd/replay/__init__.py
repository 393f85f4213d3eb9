"""Replay: orient, decide and the gate of recorded iterations, in a shadow that cannot act."""
