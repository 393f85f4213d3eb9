"""Counts what an agent's model is asked where the API reads it: in Redis."""

from __future__ import annotations

from contextlib import suppress

from boyd.errors import StoreError
from boyd.models.investigation import RequestOutcome, Usage
from boyd.store import ModelUsage


class StoredMeter:
    """Implements `boyd.llm.meter.Meter` for one model."""

    def __init__(self, usage: ModelUsage, model: str) -> None:
        self._usage = usage
        self._model = model

    def count(self, outcome: RequestOutcome, usage: Usage) -> None:
        """See `Meter`: a turn is dear, and goes on when it cannot be counted."""
        with suppress(StoreError):
            self._usage.count(self._model, outcome, usage)
