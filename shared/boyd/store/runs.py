"""Runs: requests of clients that an agent investigates in its iterations."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import TypeAdapter

from boyd import naming
from boyd.errors import QueueFull, StoreError
from boyd.models import (
    LEVELS,
    Actor,
    Callback,
    Delivery,
    Level,
    Run,
    RunPage,
    RunRequest,
    RunStatus,
    from_ms,
)
from boyd.store.fleet import Retention
from boyd.store.hashes import Listing, Position, Search, flatten, load_cursor, reading, restore
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import KeyedScripts, actor_fields, milliseconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Milliseconds to keep a callback; the scripts that end a run use the same.
KEEP_CALLBACK = 2 * 86400 * 1000
#: The most pending runs of an agent.
PENDING = 10_000

_deliveries: TypeAdapter[list[Delivery]] = TypeAdapter(list[Delivery])


@dataclass(frozen=True)
class Submitted:
    """A stored run, whether it is new, and the iteration that it started, else 0."""

    run: Run
    new: bool
    iteration: int


class Runs:
    """The runs of one agent."""

    def __init__(
        self, client: Client, scripts: KeyedScripts, keys: Keys, resend_after: float
    ) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._resend_after = milliseconds(resend_after)
        self._search = Search(client, scripts, keys.runs, "run", "status")

    def submit(
        self, request: RunRequest, start: bool, actor: Actor, run_id: str | None = None
    ) -> Submitted:
        """Store a pending run; with *start*, an idle agent begins an iteration.

        Submitting the same *run_id* again changes nothing.

        Raises:
            QueueFull: `PENDING` runs are already waiting; this one was not stored.
        """
        run_id = run_id or str(uuid.uuid4())
        new, iteration = self._scripts.run(
            "submit_run",
            run=self._keys.run(run_id),
            id=run_id,
            urgency=len(LEVELS) - 1 - LEVELS.index(request.priority),
            resend_after=self._resend_after,
            start=start,
            most=PENDING,
            actor=actor_fields(actor),
            fields=[*flatten(request), "requestedBy", actor.principal],
        )
        if new < 0:
            raise QueueFull(f"{PENDING} runs are already waiting; this one was not accepted")
        run = self.get(run_id)
        if run is None:
            raise StoreError(f"run {run_id} disappeared after it was stored")
        return Submitted(run, bool(new), int(iteration))

    def cancel(
        self,
        run_id: str,
        actor: Actor,
        retention: Retention,
        reason: str,
        request: str | None = None,
    ) -> RunStatus | Literal["unknown"] | None:
        """Cancel a run that has not ended, and work that was only for it.

        Repeating a *request* returns the first answer.

        Returns:
            None when cancelled; otherwise the run's status, or `unknown` without such a run.
        """
        outcome, *rest = self._scripts.run(
            "cancel_run",
            run=self._keys.run(run_id),
            id=run_id,
            reason=reason,
            by=actor.principal,
            request=request,
            retention=retention.limits(),
            actor=actor_fields(actor),
        )
        return None if outcome == "cancelled" else rest[0]

    def get(self, run_id: str) -> Run | None:
        """One run."""
        runs = self._read([run_id])
        return runs[0] if runs else None

    def requesters(self, run_ids: Sequence[str]) -> list[str]:
        """The principals who submitted these runs."""
        if not run_ids:
            return []
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for run_id in run_ids:
                pipe.hget(self._keys.run(run_id), "requestedBy")
            texts = pipe.execute()
        return list(dict.fromkeys(by for text in texts if text for by in text.split()))

    def page(
        self,
        limit: int,
        cursor: str | None = None,
        *,
        status: RunStatus | None = None,
        priority: Level | None = None,
        source: str | None = None,
    ) -> RunPage:
        """Runs that match the filters, newest first.

        Its cost is bounded, so a page may hold fewer than *limit* runs, or none, and still have a
        next cursor.

        Raises:
            BadCursor: *cursor* was not given out by an earlier page.
        """
        (position,) = load_cursor(cursor, 1)
        listing = self.listing(limit, position, status=status, priority=priority, source=source)
        runs = listing.records
        return RunPage(runs=runs, total=len(runs), next_cursor=listing.next_cursor)

    def listing(self, limit: int, position: Position, **filters: str | None) -> Listing[Run]:
        """The same page, from *position* on, with the place of each run."""
        values = {name: value for name, value in filters.items() if value is not None}
        return self._search.page(limit, position, values).map(read_run)

    def of_iteration(self, iteration: int) -> list[str]:
        """The runs that an iteration investigates; use it rarely, because it scans all runs."""
        return self._search.every({"status": "investigating", "iteration": str(iteration)})

    def callback(self, run_id: str) -> Callback | None:
        """The callback of a run; None when it asked for none or has not ended."""
        with translate_errors():
            fields = self._client.hgetall(self._keys.job(naming.callback(run_id)))
        return read_callback(fields) if fields else None

    def redeliver(self, run_id: str, actor: Actor | None = None) -> bool:
        """Send a run's callback again, with all its retries; False when it has none."""
        name = naming.callback(run_id)
        is_sent = self._scripts.run(
            "redeliver_callback",
            callback=self._keys.job(name),
            name=name,
            keep=KEEP_CALLBACK,
            actor=actor_fields(actor),
        )
        return bool(is_sent)

    def _read(self, ids: Sequence[str]) -> list[Run]:
        if not ids:
            return []
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for run_id in ids:
                pipe.hgetall(self._keys.run(run_id))
            hashes = pipe.execute()
        with reading(f"run {ids[0]}"):
            # A run may have been deleted between two reads.
            return [read_run(fields) for fields in hashes if "status" in fields]


def read_run(fields: Mapping[str, str]) -> Run:
    """A run from its hash."""
    return restore(Run, fields)


def read_callback(fields: Mapping[str, str]) -> Callback:
    """A run's callback from its hash."""
    queued = fields["executionState"] == "queued"
    return Callback(
        run_id=fields["id"],
        url=fields["url"],
        state=fields["executionState"],  # type: ignore[arg-type]
        attempts=int(fields.get("tries", 0)),
        next_at=from_ms(float(fields["queuedAt"])) if queued else None,
        deliveries=_deliveries.validate_json(fields.get("deliveries", "[]"), extra="ignore"),
    )
