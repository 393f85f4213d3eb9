"""Ranks what may have caused the anomalies of an episode, and says why."""

from boyd.plugins.likely_causes.plugin import LikelyCauses

__all__ = ["LikelyCauses"]
