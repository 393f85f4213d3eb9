"""`/investigations`: questions to the agent's model, and how it comes to the answer (T1 to T8)."""

from __future__ import annotations

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
from boyd.store import AgentEntry, AgentStore, Topic, is_later
from boyd_api import sse
from boyd_api.problems import FieldError, Problem
from boyd_api.routing import Answer, Media, Routes
from boyd_api.serving import Ask, not_found

routes = Routes("investigations")

#: Bytes as JSON after which a page of a log ends; somewhat more when the last entries are large.
PORTION = 8 * 1024 * 1024
#: How many entries are read at once: each may hold the output of a tool.
STEP = 20
#: Seconds that the task which has ended an investigation may take to leave it.
SETTLE = 2.0


class InvestigationsQuery(Model):
    """Which page; it may hold fewer than `limit` and still name a cursor to go on with."""

    limit: int = Field(default=50, ge=1, le=500)
    cursor: str | None = Field(default=None, max_length=500)


class LogQuery(Model):
    """Which entries: those after `after`, or from the first on."""

    after: str = Field(default="0-0", pattern=r"^[0-9]{1,19}-[0-9]{1,19}$")
    limit: int = Field(default=100, ge=1, le=500)


class Message(Model):
    """What is said to the model after its answer."""

    text: str = Field(min_length=1, max_length=MOST_ASKED)


@routes.post(
    "/investigations",
    scope="runs",
    answers={201: Investigation},
    problems=["no-model"],
    idempotent=True,
)
def ask(ask: Ask, body: InvestigationRequest) -> Answer:
    """Ask the agent's model a question; it answers when it has used its tools."""
    check_model(ask.agent.entry)
    _check_shape(body.answer)
    agent = ask.agent
    id = agent.launcher.ask(body, ask.actor, agent.entry.retention, ask.idempotent_id())
    where = f"/api/v0/agents/{agent.entry.id}/investigations/{id}"
    return Answer(_found(ask, id), headers={"Location": where})


@routes.get("/investigations", scope="read", answers={200: InvestigationPage})
def investigations(ask: Ask, query: InvestigationsQuery) -> InvestigationPage:
    """List investigations, newest first."""
    return ask.agent.store.investigations.page(query.limit, query.cursor)


@routes.get("/investigations/<id>", scope="read", answers={200: Investigation})
def show(ask: Ask, id: str) -> Investigation:
    """Show one investigation, with its answer when it has ended."""
    return _found(ask, id)


@routes.get("/investigations/<id>/log", scope="read", answers={200: LogPage})
def log(ask: Ask, id: str, query: LogQuery) -> LogPage:
    """Show what was said and done, oldest first.

    A page may hold fewer than `limit` entries, or none, and still name where to go on: it ends
    after about 8 MB, and entries of a later release of Boyd are left out.
    """
    _check_known(ask, id)
    entries = ask.agent.store.investigations.entries
    found: list[Logged] = []
    last, read, size, more = query.after, 0, 0, True
    while more and read < query.limit and size < PORTION:
        count = min(STEP, query.limit - read)
        page = entries(id, last, count)
        more = len(page) == count
        last = page[-1].id if page else last
        read += len(page)
        known = [one for one in page if one.entry is not None]
        size += sum(len(one.to_json()) for one in known)
        found += known
    return LogPage(entries=found, next_after=last if more else None)


@routes.get(
    "/investigations/<id>/events",
    scope="read",
    answers={200: Media(sse.MEDIA_TYPE, "Lines of `id`, `event` and `data`, until it has ended.")},
    headers=sse.HEADERS,
)
def follow(ask: Ask, id: str) -> Response:
    """Send what is said and done as it comes, from the beginning on, as server-sent events.

    `event` is the kind of an entry of the log, and `data` the entry as JSON. A line with a colon is
    sent every 15 s. The stream ends when everything was sent and the investigation has ended. The
    event `missed` says that Redis has lost the entry that `Last-Event-ID` names.
    """
    _check_known(ask, id)
    return sse.stream(ask, _Log(ask.agent.store, id))


@routes.post(
    "/investigations/<id>/messages",
    scope="runs",
    answers={202: Investigation},
    problems=["no-model", "busy"],
    idempotent=True,
)
def say(ask: Ask, id: str, body: Message) -> Investigation:
    """Say something more after the answer: the conversation goes on."""
    _check_known(ask, id)
    check_model(ask.agent.entry)
    if not _said(ask, id, body.text):
        raise Problem("busy", f"the last question of investigation {id} is not answered yet")
    return _found(ask, id)


@routes.post(
    "/investigations/<id>/cancel",
    scope="runs",
    answers={202: Investigation},
    problems=["finished"],
    idempotent=True,
)
def cancel(ask: Ask, id: str) -> Investigation:
    """Cancel what has not ended: nothing more is started for it, and a worker ends it soon."""
    outcome = ask.agent.store.investigations.cancel(id, ask.actor, ask.repeatable_id)
    if outcome == "unknown":
        raise _unknown(id)
    found = _found(ask, id)
    if outcome == "over":
        how = f"has ended already ({found.ending})"
        raise Problem("finished", f"the investigation {how}", state="ended", ending=found.ending)
    return found


def check_model(entry: AgentEntry) -> None:
    """Check that the agent has a model.

    Raises:
        Problem: it has none.
    """
    if entry.model is None:
        raise Problem("no-model", f"the agent {entry.id!r} has no model; give it a table [llm]")


def _check_shape(schema: JsonObject | None) -> None:
    if schema is None:
        return
    from boyd.llm.replies import check_schema  # only where an agent has a model

    try:
        check_schema(schema)
    except ValueError as error:
        wrong = FieldError(pointer="/answer", detail=str(error))
        raise Problem("invalid-request", f"answer: {error}", errors=[wrong]) from None


def _check_known(ask: Ask, id: str) -> None:
    if ask.agent.store.investigations.status(id) is None:
        raise _unknown(id)


def _found(ask: Ask, id: str) -> Investigation:
    found = ask.agent.store.investigations.get(id)
    if found is None:
        raise _unknown(id)
    return found


def _unknown(id: str) -> Problem:
    return not_found(f"no investigation {id!r}")


def _said(ask: Ask, id: str, text: str) -> bool:
    """Say it; False while the last question is not answered.

    Raises:
        Problem: the investigation is gone.
    """
    agent = ask.agent

    def go_on() -> bool | None:
        """Whether it was said; None: that may change in a moment, when its last task is left."""
        try:
            said = agent.launcher.go_on(id, text, ask.actor, ask.repeatable_id)
        except KeyError:
            raise _unknown(id) from None
        return said or (None if agent.store.investigations.status(id) == "ended" else False)

    return ask.services.tail.until(go_on, SETTLE, ask.gone) or False


class _Log:
    """The log of one investigation; implements `sse.Feed`."""

    def __init__(self, store: AgentStore, id: str) -> None:
        self.topic: Topic = (store.agent_id, id)
        self._store = store.investigations
        self._id = id

    def newest(self) -> str:
        return self._store.newest(self._id)

    def first(self) -> str:
        return "0-0"

    def reaches(self, id: str) -> bool:
        return not is_later(id, self.newest())

    def after(self, id: str) -> list[sse.Sent]:
        return [_sent(one) for one in self._store.entries(self._id, id, STEP)]

    def over(self) -> bool:
        return self._store.status(self._id) in ("ended", None)


def _sent(logged: Logged) -> sse.Sent:
    entry = logged.entry
    return sse.Sent(logged.id, entry.kind, entry.to_json()) if entry else sse.Sent(logged.id)
