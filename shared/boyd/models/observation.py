"""What was seen."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd.models.base import JsonObject, Model, Severity, Timestamp, utc_now

ObservationType = Literal["metric", "log", "alert", "event", "state"]


class Observation(Model):
    """One signal from one source at one time."""

    source: str = Field(min_length=1)
    type: ObservationType
    data: JsonObject
    severity: Severity | None = None
    metadata: JsonObject | None = None
    timestamp: Timestamp = Field(default_factory=utc_now)
