"""Has a model investigate what is grave, and tells what it has found out."""

from boyd.plugins.investigation.answer import Answer, Evidence, Outcome
from boyd.plugins.investigation.fingerprint import fingerprint
from boyd.plugins.investigation.plugin import Investigation

__all__ = ["Answer", "Evidence", "Investigation", "Outcome", "fingerprint"]
