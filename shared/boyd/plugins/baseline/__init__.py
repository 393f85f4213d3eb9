"""Learns what is usual for each number that is observed, and reports what is not."""

from boyd.plugins.baseline.plugin import Baseline

__all__ = ["Baseline"]
