"""Investigations: each is a hash, which is also its job, and an append-only log."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from boyd import naming
from boyd.errors import QueueFull, UnreadableRecord
from boyd.models import Actor, Fence, RunRequest
from boyd.models.investigation import (
    MOST_ASKED,
    MOST_TITLED,
    Asked,
    Entry,
    Investigation,
    InvestigationPage,
    InvestigationRequest,
    Logged,
    read_entry,
    redact_entry,
    title_of,
)
from boyd.store.fleet import Retention
from boyd.store.hashes import Listing, Position, Search, flatten, load_cursor, restore
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, translate_errors
from boyd.store.server.scripts import KeyedScripts, actor_fields, milliseconds
from boyd.text.redaction import redactor

#: The most investigations of an agent, including ended ones.
MOST = 5000
#: Log entries to read at once.
PAGE = 500


@dataclass(frozen=True)
class LogChange:
    """The writes of one step: log entries, fields of the hash, and an event.

    `keep` is the milliseconds to keep the log, once the investigation has ended.
    `step` marks a decision, or the start of a tool, which is refused after a cancellation.
    """

    entries: Sequence[Entry] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    event: str = ""
    keep: int | None = None
    step: Literal["", "decides", "starts"] = ""


@dataclass(frozen=True)
class Written:
    """The log's version after a write.

    `restarted` says that Redis has restarted since the tool that starts now was chosen: Redis may
    have forgotten an earlier start of it.
    """

    version: int
    restarted: bool = False


@dataclass(frozen=True)
class Origin:
    """The origin of an investigation.

    Attributes:
        source: `api`, `run`, or `plugin:<id>`.
        key: the name by which a plugin finds it again.
        actor: who asks, if it is no plugin.
    """

    source: str = "api"
    key: str | None = None
    actor: Actor | None = None


BY_API = Origin()


class Investigations:
    """The investigations of one agent."""

    def __init__(
        self, client: Client, scripts: KeyedScripts, keys: Keys, resend_after: float
    ) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._resend_after = milliseconds(resend_after)
        self._search = Search(client, scripts, keys.investigations, "investigation", "status")

    def ask(
        self,
        request: InvestigationRequest,
        queue: str,
        retention: Retention,
        *,
        id: str | None = None,
        origin: Origin = BY_API,
        run: RunRequest | None = None,
    ) -> tuple[str, bool]:
        """Begin an investigation on *queue*; return its id and whether it is new.

        Asking with the same *id* again changes nothing. With *run*, a run of the same id is
        investigated from the beginning and ends with the investigation.

        Raises:
            QueueFull: there are `MOST` investigations; this one did not begin.
        """
        id = id or str(uuid.uuid4())
        request = InvestigationRequest.from_json(_safe(request))
        by = origin.actor.principal if origin.actor else ""
        rights = origin.actor.rights if origin.actor else None
        fields = [*flatten(request), "source", origin.source]
        fields += _field_pairs(key=origin.key, askedBy=by)
        began = self._scripts.run(
            "start_investigation",
            **self._names(id),
            run_hash=self._keys.run(id),
            id=id,
            queue=queue,
            resend_after=self._resend_after,
            retention=retention.limits(),
            most=MOST,
            first=_line(Asked(text=request.question, by=by, rights=rights)),
            run=[*flatten(run), "requestedBy", by] if run else [],
            actor=actor_fields(origin.actor),
            fields=fields,
        )
        if began < 0:
            raise QueueFull(
                f"the limit of {MOST} investigations is reached; this one was not started"
            )
        return id, bool(began)

    def write(
        self, id: str, fence: Fence, version: int | None, change: LogChange
    ) -> Written | None:
        """Write *change* in one step, with secrets redacted.

        Args:
            id: the investigation.
            fence: the job as the worker entered it.
            version: the version at which the log was read; None for pieces of a turn, which do not
                depend on it.
            change: the log entries, fields and event to write.

        Returns:
            None when the job or version is lost; for pieces and a start also after a cancellation.
        """
        reply = self._scripts.run(
            "write_log",
            **self._names(id),
            attempt=fence.token,
            worker=fence.entered,
            version=version,
            keep=change.keep,
            event=change.event,
            step=change.step,
            fields=change.fields,
            entries=[_line(entry) for entry in change.entries],
        )
        return Written(int(reply[0]), bool(reply[1])) if reply else None

    def go_on(
        self,
        id: str,
        entry: Asked,
        queue: str,
        actor: Actor | None = None,
        request: str | None = None,
    ) -> int | None:
        """Continue an ended investigation; return its job's attempt, or None while it still runs.

        Repeating a *request* changes nothing.

        Raises:
            KeyError: there is no such investigation.
        """
        outcome, *rest = self._scripts.run(
            "continue_investigation",
            **self._names(id),
            id=id,
            entry=_line(entry),
            queue=queue,
            resend_after=self._resend_after,
            request=request,
            actor=actor_fields(actor),
        )
        if outcome == "unknown":
            raise KeyError(id)
        return int(rest[0]) if outcome == "ok" else None

    def cancel(self, id: str, actor: Actor, request: str | None = None) -> str:
        """Cancel an investigation, so that its worker ends it: `ok`, `over` or `unknown`.

        Repeating a *request* is `ok` even when the investigation is over by then.
        """
        outcome = self._scripts.run(
            "cancel_investigation",
            investigation=self._keys.job(naming.investigation(id)),
            id=id,
            by=actor.principal,
            request=request,
            actor=actor_fields(actor),
        )
        return str(outcome)

    def get(self, id: str) -> Investigation | None:
        """One investigation."""
        with translate_errors():
            fields = self._client.hgetall(self._keys.job(naming.investigation(id)))
        return read_investigation(fields) if "status" in fields else None

    def status(self, id: str) -> str | None:
        """The status of an investigation; None when there is no such investigation."""
        with translate_errors():
            status: str | None = self._client.hget(
                self._keys.job(naming.investigation(id)), "status"
            )
        return status

    def newest(self, id: str) -> str:
        """The id of the newest entry in its log; `0-0` without any."""
        with translate_errors():
            rows = self._client.xrevrange(self._keys.log(id), count=1)
        return str(rows[0][0]) if rows else "0-0"

    def log(self, id: str, after: str = "0-0") -> list[Logged]:
        """The log entries after *after*, oldest first."""
        entries: list[Logged] = []
        while page := self.entries(id, entries[-1].id if entries else after):
            entries += page
        return entries

    def log_from(self, id: str, first: str) -> list[Logged]:
        """The log entry *first* and all after it; empty if the log does not have it."""
        page = self._entries(id, first, PAGE)
        if not page or page[0].id != first:
            return []
        return page + self.log(id, page[-1].id)

    def entries(self, id: str, after: str = "0-0", count: int = PAGE) -> list[Logged]:
        """Up to *count* log entries after *after*, oldest first."""
        return self._entries(id, f"({after}", count)

    def _entries(self, id: str, first: str, count: int) -> list[Logged]:
        with translate_errors():
            rows = self._client.xrange(self._keys.log(id), min=first, count=count)
        # An entry of a later release keeps its id, but cannot be read.
        return [Logged(id=row, entry=read_entry(fields.get("entry", ""))) for row, fields in rows]

    def entries_before(self, id: str, before: str | None, count: int) -> list[Logged]:
        """Up to *count* log entries before *before*, or the last ones, newest first."""
        latest = f"({before}" if before else "+"
        with translate_errors():
            rows = self._client.xrevrange(self._keys.log(id), max=latest, count=count)
        return [Logged(id=row, entry=read_entry(fields.get("entry", ""))) for row, fields in rows]

    def open(self, most: int) -> list[str]:
        """The ids of up to *most* investigations that have not ended, in no order."""
        begin = naming.investigation("")
        with translate_errors():
            names = self._client.sscan_iter(self._keys.jobs, match=f"{begin}*", count=PAGE)
            return [name.removeprefix(begin) for name in islice(names, most)]

    def forget(self, id: str, places: Sequence[str]) -> None:
        """Remove log entries whose content later entries repeat in full."""
        if places:
            with translate_errors():
                self._client.xdel(self._keys.log(id), *places)

    def page(self, limit: int, cursor: str | None = None) -> InvestigationPage:
        """Investigations, newest first.

        Raises:
            BadCursor: *cursor* was not given out by an earlier page.
        """
        (position,) = load_cursor(cursor, 1)
        listing = self.listing(limit, position)
        every = listing.records
        return InvestigationPage(
            investigations=every, total=len(every), next_cursor=listing.next_cursor
        )

    def listing(self, limit: int, position: Position) -> Listing[Investigation]:
        """The same page, from *position* on, with the place of each investigation."""
        return self._search.page(limit, position, {}).map(read_investigation)

    def _names(self, id: str) -> dict[str, str]:
        investigation = self._keys.job(naming.investigation(id))
        return {"investigation": investigation, "log": self._keys.log(id)}


def _line(entry: Entry) -> str:
    """A log entry as stored, with secrets redacted."""
    return redact_entry(entry).to_json()


def _safe(request: InvestigationRequest) -> str:
    """A request with secrets redacted, cut to the permitted lengths."""
    safe = redactor().redact_json(request.to_wire())
    for name in ("question", "instructions"):
        safe[name] = safe[name][:MOST_ASKED]
    safe["title"] = (safe["title"] or title_of(safe["question"]))[:MOST_TITLED]
    return json.dumps(safe)


def _field_pairs(**values: str | None) -> list[str]:
    return [text for name, value in values.items() if value for text in (name, value)]


def read_investigation(fields: Mapping[str, str]) -> Investigation:
    """An investigation from its hash."""
    try:
        return restore(Investigation, fields)
    except ValueError as error:
        raise UnreadableRecord(
            f"investigation {fields.get('id')} cannot be read: {error}"
        ) from None
