"""Runs: what clients ask an agent to look into (L13, L35)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boyd.models import LEVELS, Run, RunRequest, from_ms
from boyd.store.client import Client, translated
from boyd.store.hashes import flatten, restore
from boyd.store.keys import Keys
from boyd.store.scripts import Scripts

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Submitted:
    """A run that was stored, and the iteration that it started, if it did."""

    run: Run
    iteration: int


class Runs:
    """The runs of one agent."""

    def __init__(self, client: Client, scripts: Scripts, keys: Keys, dispatch: float) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._dispatch = int(dispatch * 1000)

    def submit(self, request: RunRequest, start: bool) -> Submitted:
        """Store a pending run; with *start*, an idle agent begins an iteration."""
        keys = self._keys
        run_id = str(uuid.uuid4())
        names = [
            *(keys.run(run_id), keys.runs, keys.runs_pending, keys.loop),
            *(keys.iteration, keys.due, keys.events),
        ]
        urgency = len(LEVELS) - 1 - LEVELS.index(request.priority)
        args = [run_id, urgency, self._dispatch, int(start), *flatten(request)]
        now, iteration = self._scripts.run("submit_run", names, args)
        run = Run(
            **request.model_dump(),
            id=run_id,
            status="pending",
            created_at=from_ms(now),
            updated_at=from_ms(now),
        )
        return Submitted(run, int(iteration))

    def get(self, run_id: str) -> Run | None:
        """One run."""
        with translated():
            fields = self._client.hgetall(self._keys.run(run_id))
        return read_run(fields) if fields else None


def read_run(fields: Mapping[str, str]) -> Run:
    """A run from its hash."""
    return restore(Run, fields)
