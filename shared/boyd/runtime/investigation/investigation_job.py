"""The jobs of investigations: what a worker does with one, and what becomes of a lost one."""

from __future__ import annotations

import logging
import threading

from boyd import naming, queues
from boyd.errors import ConfigError, StoreError
from boyd.llm.conversation import Unreadable
from boyd.models.investigation import Ended
from boyd.phases.phase_context import describe
from boyd.redaction import redactor
from boyd.runtime.engine import Engine
from boyd.runtime.investigation.move import Move, over
from boyd.runtime.jobs.runner import Done, Fields, Later
from boyd.settings.model import ModelSettings
from boyd.store import Fence, Stale, StuckJob

log = logging.getLogger("boyd.runtime")


class InvestigationHandler:
    """The investigations of one agent."""

    patient = False

    def __init__(self, engine: Engine, settings: ModelSettings) -> None:
        self.engine = engine
        self.settings = settings
        #: Waiting for a model takes minutes and must not keep a worker from all else.
        self.thinking = threading.BoundedSemaphore(engine.settings.thinking)

    def limit(self, fields: Fields) -> float:
        """Seconds one move may take."""
        host = self.engine.agent.host
        parts = [*host.actions.values(), *host.tools.values()]
        longest = max((part.timeout for part in parts), default=0.0)
        # Three attempts, and before each the longest pause that a server may ask for.
        turn = 3 * (self.settings.timeouts.total + 60)
        return self.engine.settings.phase_limit + max(turn, longest)

    def perform(self, id: str, fields: Fields, fence: Fence, retry: bool) -> Done | Later:
        """Make the next move; what goes wrong ends the investigation, with what was found.

        Raises:
            Stale: it is not ours any more.
            StoreUnavailable: Redis does not answer.
        """
        try:
            move = Move(self.engine, self.settings, self.thinking, id, fence, fields)
        except Unreadable as error:
            # A worker of that release may take it; if none does, it is given up.
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

    def broken(self, id: str, fields: Fields, why: str) -> Done | Later:
        """End it with an error: its log cannot even be read, or written."""
        return self._broken(id, fields.get("source", ""), why)

    def _broken(self, id: str, source: str, why: str) -> Done:
        why = redactor().redact(why)  # nothing that redacts what it writes comes after it
        ended = Ended(ending="error", detail=why, text=f"The investigation failed: {why}")
        stored = {"status": "ended", "ending": "error", "detail": why, "text": ended.text}
        return over(self.engine, id, source, ended, [], stored)

    def lost(self, id: str, stuck: StuckJob) -> None:
        """Let another worker go on: the log says how far it is."""

    def given_up(self, id: str, stuck: StuckJob) -> Done:
        """End it with what was found until its workers were lost."""
        worker = stuck.worker.partition("/")[0]
        why = f"it lost its workers again and again, last {worker}"
        if not worker:
            why = f"no worker took it from queue {stuck.queue or queues.ACT!r}"
        fence = Fence(naming.investigation(id), stuck.attempt, stuck.worker)
        try:
            job = {"queue": stuck.queue or ""}
            move = Move(self.engine, self.settings, self.thinking, id, fence, job)
            return move.fail(why)
        except Stale:
            return Done("failed", 0.0)
        except Unreadable as error:
            found = self.engine.store.investigations.get(id)
            return self._broken(id, found.source if found else "", f"{why}; {error}")
