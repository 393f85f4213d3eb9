"""Ends investigations of an agent that has no model any more."""

from __future__ import annotations

from boyd.models import RunResult
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.runner import Done, Fields
from boyd.store import Ending, Fence, StuckJob

_WHY = "The agent has no model any more: its file has no table [llm]"


class NoModelHandler:
    """The investigations of one agent without a model."""

    patient = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def limit(self, fields: Fields) -> float:
        """Seconds it may take."""
        return self._engine.settings.phase_limit

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done:
        """End it."""
        return self._over(id)

    def broken(self, id: str, fields: Fields, why: str) -> Done:
        """End it."""
        return self._over(id)

    def lost(self, id: str, stuck: StuckJob) -> None:
        """Let another worker end it."""

    def given_up(self, id: str, stuck: StuckJob) -> Done:
        """End it."""
        return self._over(id)

    def _over(self, id: str) -> Done:
        fields = {"status": "ended", "ending": "error", "detail": _WHY, "text": _WHY}
        run = self._engine.store.runs.get(id)
        runs: list[Ending] = []
        if run is not None and run.status == "investigating":
            result = RunResult(
                summary=_WHY, findings=[], actions_performed=[], loop_iterations=0, duration=0.0
            )
            runs.append((id, "failed", result))
        return Done("failed", self._engine.retention.of_runs()[0] / 1000, fields, runs)
