"""`/investigations`: questions to the agent's model, their answers and their logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from flask import Response
from pydantic import Field

from boyd.models import JsonObject, Model
from boyd.models.investigation import (
    MOST_ASKED,
    Investigation,
    InvestigationPage,
    InvestigationRequest,
    Logged,
    LogPage,
)
from boyd.models.loop import InvestigationRecord
from boyd.store import AgentEntry, AgentStore, Topic, is_later
from boyd_api.http.event_streams import HEADERS, MEDIA_TYPE, EventFeed, ServerSentEvent
from boyd_api.http.problems import FieldError, HttpProblem, not_found
from boyd_api.http.request_context import PageQuery, RequestContext
from boyd_api.http.routing import JsonResponse, Media, Routes

routes = Routes("investigations")

#: Bytes of JSON after which a page of a log ends; large last entries may exceed it.
PAGE_BYTES = 8 * 1024 * 1024
#: Entries to read at once: each may hold the output of a tool.
STEP = 20
#: Seconds that the task which has ended an investigation may take to release it.
SETTLE = 2.0


class LogQuery(Model):
    """Selects the entries after `after`, or from the first on."""

    after: str = Field(default="0-0", pattern=r"^[0-9]{1,19}-[0-9]{1,19}$")
    limit: int = Field(default=100, ge=1, le=500)


class FollowUpMessage(Model):
    """A message to the model after its answer."""

    text: str = Field(min_length=1, max_length=MOST_ASKED)


@routes.post("/investigations", scope="runs", answers={201: Investigation}, problems=["no-model"])
def ask(ctx: RequestContext, body: InvestigationRequest) -> JsonResponse:
    """Ask the agent's model a question; it answers when it has used its tools."""
    agent = ctx.agent
    check_model(agent.entry)
    _check_shape(body.answer)
    retention = agent.entry.retention
    ctx.take_storage(len(body.to_json().encode()))
    id = agent.launcher.ask(body, ctx.actor_with_rights(), retention, ctx.idempotent_id())
    where = f"/api/v0/agents/{agent.entry.id}/investigations/{id}"
    return JsonResponse(_read(ctx, id), headers={"Location": where})


@routes.get("/investigations", scope="read")
def investigations(ctx: RequestContext, query: PageQuery) -> InvestigationPage:
    """List investigations, newest first."""
    return ctx.agent.past_work.investigations(query.limit, query.cursor)


@routes.get("/investigations/<id>", scope="read")
def show(ctx: RequestContext, id: str) -> Investigation:
    """Show one investigation, with its answer when it has ended."""
    investigation = ctx.agent.store.investigations.get(id)
    return investigation or _read_archive(ctx, id).investigation


class InvestigationLog(Protocol):
    """The log of an investigation, in Redis or in the archive."""

    def newest(self, id: str) -> str:
        """The id of the newest entry; `0-0` without any."""

    def entries(self, id: str, after: str = "0-0", count: int = STEP) -> list[Logged]:
        """Up to *count* entries after *after*, oldest first."""

    def entries_before(self, id: str, before: str | None, count: int) -> list[Logged]:
        """Up to *count* entries before *before*, or the last ones, newest first."""


@dataclass(frozen=True)
class ArchivedLog(InvestigationLog):
    """A log that the archive has."""

    log: Sequence[Logged]

    def newest(self, id: str) -> str:
        """See `InvestigationLog`."""
        return self.log[-1].id if self.log else "0-0"

    def entries(self, id: str, after: str = "0-0", count: int = STEP) -> list[Logged]:
        """See `InvestigationLog`."""
        later = (logged for logged in self.log if is_later(logged.id, after))
        return list(islice(later, count))

    def entries_before(self, id: str, before: str | None, count: int) -> list[Logged]:
        """See `InvestigationLog`."""
        newest_first = reversed(self.log)
        earlier = (logged for logged in newest_first if not before or is_later(before, logged.id))
        return list(islice(earlier, count))


def has_left_redis(ctx: RequestContext, id: str) -> bool:
    """True if Redis does not have the investigation; the archive may."""
    return ctx.agent.store.investigations.status(id) is None


def open_log(ctx: RequestContext, id: str) -> InvestigationLog:
    """The log in Redis or, once Redis has dropped it, in the archive.

    Raises `HttpProblem` if neither has it.
    """
    if has_left_redis(ctx, id):
        return ArchivedLog(_read_archive(ctx, id).log)
    return ctx.agent.store.investigations


@routes.get("/investigations/<id>/log", scope="read")
def log(ctx: RequestContext, id: str, query: LogQuery) -> LogPage:
    """Show the messages and tool calls, oldest first.

    A page may hold fewer than `limit` entries, or none, and still have a `nextAfter`: it ends after
    about 8 MB, and entries of a later release of Boyd are left out.
    """
    entries = open_log(ctx, id).entries
    entries_read: list[Logged] = []
    last, read, size, more = query.after, 0, 0, True
    while more and read < query.limit and size < PAGE_BYTES:
        count = min(STEP, query.limit - read)
        page = entries(id, last, count)
        more = len(page) == count
        last = page[-1].id if page else last
        read += len(page)
        readable = [logged for logged in page if logged.entry is not None]
        size += sum(len(logged.to_json()) for logged in readable)
        entries_read += readable
    return LogPage(entries=entries_read, next_after=last if more else None)


@routes.get(
    "/investigations/<id>/events",
    scope="read",
    answers={200: Media(MEDIA_TYPE, "Lines of `id`, `event` and `data`, until it has ended.")},
    headers=HEADERS,
)
def follow(ctx: RequestContext, id: str) -> Response:
    """Send messages and tool calls as they come, from the first on, as server-sent events.

    `event` is the kind of an entry of the log, and `data` the entry as JSON. A line with a colon is
    sent every 15 s. The stream ends when everything was sent and the investigation has ended. The
    event `missed` says that Redis has lost the entry that `Last-Event-ID` names.
    """
    return ctx.stream(_LogFeed(ctx.agent.store, id, open_log(ctx, id)))


@routes.post(
    "/investigations/<id>/messages",
    scope="runs",
    answers={202: Investigation},
    problems=["no-model", "busy", "finished"],
)
def say(ctx: RequestContext, id: str, body: FollowUpMessage) -> Investigation:
    """Add a message after the answer: the conversation continues."""
    _check_kept(ctx, id)
    check_model(ctx.agent.entry)
    if not _continue(ctx, id, body.text):
        detail = f"the last question of investigation {id} is not answered yet"
        raise HttpProblem("busy", detail)
    return _read(ctx, id)


@routes.post(
    "/investigations/<id>/cancel",
    scope="runs",
    answers={202: Investigation},
    problems=["finished"],
)
def cancel(ctx: RequestContext, id: str) -> Investigation:
    """Cancel an investigation: no further step starts, and a worker ends it soon."""
    _check_kept(ctx, id)
    outcome = ctx.agent.store.investigations.cancel(id, ctx.actor, ctx.repeatable_id)
    if outcome == "unknown":
        raise _no_investigation(id)
    investigation = _read(ctx, id)
    if outcome == "over":
        detail = f"the investigation has already ended ({investigation.ending})"
        raise HttpProblem("finished", detail, state="ended", ending=investigation.ending)
    return investigation


def check_model(entry: AgentEntry) -> None:
    """Raise `HttpProblem` if the agent has no model."""
    if entry.model is None:
        detail = f"the agent {entry.id!r} has no model; add a table [llm] to its agent file"
        raise HttpProblem("no-model", detail)


def _check_shape(schema: JsonObject | None) -> None:
    if schema is None:
        return
    from boyd.llm.replies import check_schema

    try:
        check_schema(schema)
    except ValueError as error:
        wrong = FieldError(pointer="/answer", detail=str(error))
        raise HttpProblem("invalid-request", f"answer: {error}", errors=[wrong]) from None


def _check_kept(ctx: RequestContext, id: str) -> None:
    """Raise `HttpProblem` if Redis does not have it, which says so if the archive does."""
    if has_left_redis(ctx, id):
        ending = _read_archive(ctx, id).investigation.ending
        detail = f"the investigation has ended ({ending}), and only the archive has it: ask anew"
        raise HttpProblem("finished", detail, state="ended", ending=ending)


def _read_archive(ctx: RequestContext, id: str) -> InvestigationRecord:
    record = ctx.agent.past_work.investigation(id)
    if record is None:
        raise _no_investigation(id)
    return record


def _read(ctx: RequestContext, id: str) -> Investigation:
    investigation = ctx.agent.store.investigations.get(id)
    if investigation is None:
        raise _no_investigation(id)
    return investigation


def _no_investigation(id: str) -> HttpProblem:
    return not_found(f"no investigation {id!r}")


def _continue(ctx: RequestContext, id: str, text: str) -> bool:
    """Continue with a message; False while the last question is not answered."""
    agent = ctx.agent

    def go_on() -> bool | None:
        """True if it continues; None if it may in a moment, when its last task has released it."""
        try:
            done = agent.launcher.go_on(id, text, ctx.actor_with_rights(), ctx.repeatable_id)
        except KeyError:
            raise _no_investigation(id) from None
        return done or (None if agent.store.investigations.status(id) == "ended" else False)

    return ctx.services.changes.until(go_on, SETTLE, ctx.is_gone) or False


class _LogFeed(EventFeed):
    """The log of one investigation."""

    def __init__(self, store: AgentStore, id: str, log: InvestigationLog) -> None:
        self.topic: Topic = (store.agent_id, id)
        self._store = store.investigations
        self._id = id
        self._log = log

    def newest(self) -> str:
        return self._log.newest(self._id)

    def first(self) -> str:
        return "0-0"

    def reaches(self, id: str) -> bool:
        return not is_later(id, self.newest())

    def after(self, id: str) -> list[ServerSentEvent]:
        return [_event(logged) for logged in self._log.entries(self._id, id, STEP)]

    def over(self) -> bool:
        return self._store.status(self._id) in ("ended", None)


def _event(logged: Logged) -> ServerSentEvent:
    entry = logged.entry
    if entry is None:
        return ServerSentEvent(logged.id)
    return ServerSentEvent(logged.id, entry.kind, entry.to_json())
