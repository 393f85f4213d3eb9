"""Records actions that helped, and recalls them in similar situations."""

from boyd.plugins.historian.plugin import Historian

__all__ = ["Historian"]
