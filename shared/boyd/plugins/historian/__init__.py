"""Remembers what helped, and says so when the like is seen again."""

from boyd.plugins.historian.plugin import Historian

__all__ = ["Historian"]
