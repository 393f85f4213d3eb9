"""Runs: what clients ask an agent to look into (L13, L35, R1-R6)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from boyd.store.approvals import Answered
from boyd.store.audit import actor_fields
from boyd.store.client import Client, translated
from boyd.store.hashes import flatten, restore
from boyd.store.keys import Keys
from boyd.store.paging import dump_cursor, load_cursor, read_page
from boyd.store.portion import Portion
from boyd.store.retention import Retention
from boyd.store.scripts import Scripts
from boyd.store.timing import milliseconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Milliseconds that a callback is kept, as by the scripts that end a run.
KEEP_CALLBACK = 2 * 86400 * 1000
#: The most runs of an agent that may be pending.
PENDING = 10_000
#: The most runs that one page looks at to find those that fit.
SCANNED = 500

_deliveries: TypeAdapter[list[Delivery]] = TypeAdapter(list[Delivery])


@dataclass(frozen=True)
class Submitted:
    """A run that was stored, whether it is new, and the iteration that it started, if it did."""

    run: Run
    new: bool
    iteration: int


class Runs:
    """The runs of one agent."""

    def __init__(self, client: Client, scripts: Scripts, keys: Keys, dispatch: float) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._dispatch = milliseconds(dispatch)

    def submit(
        self, request: RunRequest, start: bool, actor: Actor, run_id: str | None = None
    ) -> Submitted:
        """Store a pending run; with *start*, an idle agent begins an iteration.

        The same *run_id* is the same run, however often it is submitted.

        Raises:
            QueueFull: `PENDING` runs wait already, and this one was not taken.
        """
        keys = self._keys
        run_id = run_id or str(uuid.uuid4())
        names = [
            *(keys.run(run_id), keys.runs, keys.runs_pending, keys.loop),
            *(keys.iteration, keys.due, keys.events, keys.audit_open),
        ]
        urgency = len(LEVELS) - 1 - LEVELS.index(request.priority)
        fields = [*flatten(request), "requestedBy", actor.principal]
        args = [run_id, urgency, self._dispatch, int(start), PENDING]
        tail = [len(fields), *fields, *actor_fields(actor)]
        new, iteration = self._scripts.run("submit_run", names, [*args, *tail])
        if new < 0:
            raise QueueFull(f"{PENDING} runs wait already; this one was not taken")
        run = self.get(run_id)
        if run is None:
            raise StoreError(f"run {run_id} was stored and is gone")
        return Submitted(run, bool(new), int(iteration))

    def cancel(
        self,
        run_id: str,
        actor: Actor,
        retention: Retention,
        reason: str,
        request: str | None = None,
    ) -> Answered:
        """Cancel a run that has not ended, and what was to be done only for it (R4).

        The same *request* is answered as the first time.

        Returns:
            `resolved`, or `over` with the run's status or `unknown`.
        """
        keys = self._keys
        names = [
            *(keys.run(run_id), keys.runs, keys.runs_pending, keys.runs_finished),
            *(keys.iteration, keys.events, keys.due, keys.audit_open),
            *(keys.approvals_pending, keys.approvals_history, keys.approvals_fingerprints),
        ]
        args = [
            *(run_id, keys.prefix, *retention.of_runs(), *retention.of_items(), reason),
            *(actor.principal, request or "", *actor_fields(actor)),
        ]
        outcome, *rest = self._scripts.run("cancel_run", names, args)
        return Answered("resolved") if outcome == "cancelled" else Answered(outcome, rest[0])

    def get(self, run_id: str) -> Run | None:
        """One run."""
        found = self._read([run_id])
        return found[0] if found else None

    def requesters(self, run_ids: Sequence[str]) -> list[str]:
        """The principals who submitted those runs."""
        if not run_ids:
            return []
        with translated():
            pipe = self._client.pipeline(transaction=False)
            for run_id in run_ids:
                pipe.hget(self._keys.run(run_id), "requestedBy")
            found = pipe.execute()
        return list(dict.fromkeys(by for text in found if text for by in text.split()))

    def page(
        self,
        limit: int,
        cursor: str | None = None,
        *,
        status: RunStatus | None = None,
        priority: Level | None = None,
        source: str | None = None,
    ) -> RunPage:
        """Runs, newest first, that fit the filters.

        At most `SCANNED` runs are looked at and only a `Portion` is read, so a page may hold fewer
        than *limit*, or none, and still name a cursor to go on with: the cost of a page is bounded
        whatever is kept.

        Raises:
            BadCursor: *cursor* was not given out by an earlier page.
        """
        wanted = {"status": status, "priority": priority, "source": source}
        filters = {name: value for name, value in wanted.items() if value is not None}
        (position,) = load_cursor(cursor, 1)
        portion = Portion(self._scripts)
        found: list[Run] = []
        looked_at = 0
        while True:
            # As many again as have been looked at: usually the first step has them all.
            step = min(max(limit, looked_at), SCANNED - looked_at) if filters else limit
            places = read_page(self._scripts, self._keys.runs, position, step)
            fitting = self._fitting(places, filters)
            names = [name for name, _ in fitting]
            read = portion.read(self._keys.run_prefix, names)
            for place, fields in zip(fitting, read, strict=False):
                # A run may be given up, or not fit any more, by the time that all of it is read.
                if "status" in fields and _fits(fields, filters):
                    found.append(read_run(fields))
                if len(found) == limit or portion.full:
                    return RunPage(runs=found, total=len(found), next_cursor=dump_cursor(place))
            looked_at += len(places)
            if len(places) < step:
                return RunPage(runs=found, total=len(found))
            position = places[-1]
            if looked_at >= SCANNED or not filters:
                cursor = dump_cursor(position)
                return RunPage(runs=found, total=len(found), next_cursor=cursor)

    def claimed_by(self, iteration: int) -> list[str]:
        """The runs that an iteration looks into; reads all that are kept, so ask rarely."""
        with translated():
            ids = self._client.zrevrange(self._keys.runs, 0, -1)
        wanted = {"status": "investigating", "iteration": str(iteration)}
        return [
            name
            for first in range(0, len(ids), SCANNED)
            for name, _ in self._fitting([(id, 0.0) for id in ids[first : first + SCANNED]], wanted)
        ]

    def callback(self, run_id: str) -> Callback | None:
        """How far a run's callback is; None when it asked for none, or has not ended."""
        with translated():
            fields = self._client.hgetall(self._keys.order(naming.callback(run_id)))
        return read_callback(fields) if fields else None

    def redeliver(self, run_id: str, actor: Actor | None = None) -> bool:
        """Send a run's callback once more, from the beginning of the plan; False without one."""
        keys = self._keys
        name = naming.callback(run_id)
        names = [keys.order(name), keys.due, keys.audit_open]
        args = [name, KEEP_CALLBACK, *actor_fields(actor)]
        return bool(self._scripts.run("redeliver", names, args))

    def _read(self, ids: Sequence[str]) -> list[Run]:
        if not ids:
            return []
        with translated():
            pipe = self._client.pipeline(transaction=False)
            for run_id in ids:
                pipe.hgetall(self._keys.run(run_id))
            # A run that is given up between two reads leaves nothing to read.
            return [read_run(fields) for fields in pipe.execute() if "status" in fields]

    def _fitting(
        self, places: Sequence[tuple[str, float]], filters: Mapping[str, str]
    ) -> Sequence[tuple[str, float]]:
        """The places of runs that fit, by the few fields that tell."""
        if not filters or not places:
            return places
        with translated():
            pipe = self._client.pipeline(transaction=False)
            for name, _ in places:
                pipe.hmget(self._keys.run(name), list(filters))
            answers = pipe.execute()
        wanted = list(filters.values())
        return [place for place, found in zip(places, answers, strict=True) if found == wanted]


def _fits(fields: Mapping[str, str], filters: Mapping[str, str]) -> bool:
    return all(fields.get(name) == value for name, value in filters.items())


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
        deliveries=_deliveries.validate_json(fields.get("deliveries", "[]")),
    )
