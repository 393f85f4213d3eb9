"""Lets a model investigate severe situations and reports its findings."""

from boyd.plugins.investigator.plugin import Investigator
from boyd.plugins.investigator.question import (
    AnswerEvidence,
    InvestigationAnswer,
    InvestigationOutcome,
    fingerprint,
)

__all__ = [
    "AnswerEvidence",
    "InvestigationAnswer",
    "InvestigationOutcome",
    "Investigator",
    "fingerprint",
]
