"""A stretch of time that a list is asked for."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

from boyd.models import Model, Timestamp

_DATE = re.compile(r"\d{4}-\d\d-\d\d[Tt ]", re.ASCII)


def _written(value: object) -> object:
    """Refuse a number, which would be read as seconds since 1970."""
    if isinstance(value, str) and not _DATE.match(value):
        raise ValueError("should be a time such as 2026-01-05T12:00:00Z")
    return value


Moment = Annotated[Timestamp | None, BeforeValidator(_written)]


class Period(Model):
    """From when on, and until when."""

    since: Moment = None
    until: Moment = None
