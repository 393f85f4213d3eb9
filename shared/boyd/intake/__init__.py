"""Intake: converts webhooks of other systems into observations."""

from boyd.intake.formats import (
    GROUP,
    UNOBSERVED,
    Parse,
    UnknownFormat,
    find_format,
    format_names,
    parse,
    parse_declared,
)
from boyd.intake.request import (
    MAX_OBSERVATIONS,
    BadIntake,
    IntakeRequest,
    IntakeUnready,
    NotJson,
    read_json,
    to_utf8,
)

__all__ = [
    "GROUP",
    "MAX_OBSERVATIONS",
    "UNOBSERVED",
    "BadIntake",
    "IntakeRequest",
    "IntakeUnready",
    "NotJson",
    "Parse",
    "UnknownFormat",
    "find_format",
    "format_names",
    "parse",
    "parse_declared",
    "read_json",
    "to_utf8",
]
