"""Makes the moves of investigations, one job per investigation."""

from __future__ import annotations

import logging
import threading
from functools import cached_property
from typing import TYPE_CHECKING

from boyd import naming
from boyd.errors import ConfigError, StoreError
from boyd.models import Fence
from boyd.models.investigation import Ended
from boyd.phases.phase_context import describe
from boyd.runtime.ending import finish_investigation
from boyd.runtime.engine import Engine
from boyd.runtime.jobs.job_runner import Done, Fields, JobFailure, JobHandler, Later
from boyd.store import Stale, StuckJob
from boyd.text.redaction import redactor

if TYPE_CHECKING:
    from boyd.runtime.investigations.move import Move, RecentInvestigations

log = logging.getLogger("boyd.runtime")

NO_MODEL = "The agent no longer has a model: its file has no table [llm]"


class InvestigationHandler(JobHandler):
    """The investigations of one agent; without a model they end with an error."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._settings = engine.agent.settings.llm
        # Waiting for a model takes minutes; it must not occupy all threads of a worker.
        self._thinking = threading.BoundedSemaphore(engine.settings.thinking)

    def limit(self, fields: Fields) -> float:
        """Seconds one move may take."""
        if self._settings is None:
            return self._engine.settings.phase_limit
        host = self._engine.agent.host
        parts = [*host.actions.values(), *host.tools.values()]
        longest = max((part.timeout for part in parts), default=0.0)
        # Three attempts, each after the longest pause that a server may request.
        turn = 3 * (self._settings.timeouts.total + 60)
        return self._engine.settings.phase_limit + max(turn, longest)

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Make the next move; an error ends the investigation with its findings so far.

        Raises:
            Stale: another worker owns it.
            StoreUnavailable: Redis does not answer.
        """
        if self._settings is None:
            return self._fail(id, self._source(id), NO_MODEL)
        from boyd.llm.conversation import Unreadable

        try:
            move = self._move(id, fence, fields)
        except Unreadable as error:
            # A worker of the release that wrote it may take it; if none does, it is given up.
            raise Stale(str(error)) from None
        try:
            return move.run()
        except StoreError:
            raise
        except ConfigError as error:
            return move.fail(str(error))
        except Exception as error:
            log.exception("investigation %s failed", id)
            return move.fail(describe(error))

    def handle_error(self, id: str, fields: Fields, failure: JobFailure) -> Done | Later:
        """End the investigation with an error: its log cannot be read or written."""
        return self._fail(id, fields.get("source", ""), failure.reason)

    def give_up(self, id: str, stuck: StuckJob) -> Done:
        """End the investigation with its findings so far."""
        if self._settings is None:
            return self._fail(id, self._source(id), NO_MODEL)
        from boyd.llm.conversation import Unreadable

        fence = Fence(naming.investigation(id), stuck.attempt, stuck.worker)
        try:
            return self._move(id, fence, {"queue": stuck.queue or ""}).fail(stuck.reason)
        except Stale:
            return Done("failed", 0.0)
        except Unreadable as error:
            return self._fail(id, self._source(id), f"{stuck.reason}; {error}")

    def _move(self, id: str, fence: Fence, fields: Fields) -> Move:
        # Imported only here: an agent without a model does not load what a model needs.
        from boyd.runtime.investigations.move import Move

        assert self._settings is not None, "only an agent with a model makes moves"
        recent = self._recent
        return Move(self._engine, self._settings, self._thinking, recent, id, fence, fields)

    @cached_property
    def _recent(self) -> RecentInvestigations:
        from boyd.runtime.investigations.move import RecentInvestigations

        return RecentInvestigations(self._engine.store.investigations)

    def _source(self, id: str) -> str:
        investigation = self._engine.store.investigations.get(id)
        return investigation.source if investigation else ""

    def _fail(self, id: str, source: str, reason: str) -> Done:
        reason = redactor().redact(reason)  # the log is bypassed, and with it the redaction
        entry = Ended(ending="error", detail=reason, text=f"The investigation failed: {reason}")
        stored = {"status": "ended", "ending": "error", "detail": reason, "text": entry.text}
        return finish_investigation(self._engine, id, source, entry, [], stored)
