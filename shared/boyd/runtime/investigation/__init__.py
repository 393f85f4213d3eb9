"""Investigations as workers make them: one move after the other, each a task of its own.

Imported only where an agent has a model.
"""

from boyd.runtime.investigation.investigation_job import InvestigationHandler
from boyd.runtime.investigation.model_access import ModelAccess

__all__ = ["InvestigationHandler", "ModelAccess"]
