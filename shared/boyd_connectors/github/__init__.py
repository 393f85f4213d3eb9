"""Watches repositories on GitHub, reruns workflows, proposes reverts and opens issues."""

from boyd_connectors.github.plugin import GitHub

__all__ = ["GitHub"]
