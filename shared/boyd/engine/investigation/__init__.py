"""Investigations as workers make them: one move after the other, each a task of its own.

Imported only where an agent has a model.
"""

from boyd.engine.investigation.job import Investigated
from boyd.engine.investigation.thinking import Thinking

__all__ = ["Investigated", "Thinking"]
