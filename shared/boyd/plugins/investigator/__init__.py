"""Lets a model investigate severe situations and reports its findings."""

from boyd.plugins.investigator.findings import (
    AnswerEvidence,
    InvestigationAnswer,
    InvestigationOutcome,
)
from boyd.plugins.investigator.plugin import Investigator
from boyd.plugins.investigator.question import fingerprint

__all__ = [
    "AnswerEvidence",
    "InvestigationAnswer",
    "InvestigationOutcome",
    "Investigator",
    "fingerprint",
]
