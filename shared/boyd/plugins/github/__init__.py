"""Watches repositories on GitHub, reruns workflows, proposes reverts and opens issues."""

from boyd.plugins.github.plugin import GitHub

__all__ = ["GitHub"]
