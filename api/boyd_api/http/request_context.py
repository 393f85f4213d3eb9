"""Request context: what a route knows of the request that it answers, and reads from it."""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from flask import Response, g, request
from pydantic import BeforeValidator, Field, ValidationError

from boyd import intake
from boyd.errors import StoreUnavailable
from boyd.models import Actor, ApiKey, Call, CallRequest, Model, Timestamp
from boyd.models.actor import Permission
from boyd.models.rights import Verb, describe_right
from boyd.store import AgentEntry
from boyd.store.calls import seconds_to_keep
from boyd.store.storage_budget import DAY
from boyd.text import queues
from boyd.text.json_limits import MAX_VALUES
from boyd_api.http import idempotency_keys
from boyd_api.http.event_streams import EventFeed
from boyd_api.http.problems import FieldError, HttpProblem, invalid, retry_after
from boyd_api.http.services import AgentAccess, Services, is_loopback

#: Bytes that Redis keeps for a call of a worker besides what was sent: the call and its execution.
CALL_BYTES = 4096
#: How often what was sent is kept: in the call, an approval that it waits for, and the ledger.
CALL_COPIES = 3

#: The right that a call of a kind needs; the dry run of an approval is for who answers it.
_VERBS: Mapping[tuple[str, bool], Verb] = {
    ("execute", False): "propose",
    ("dry-run", False): "propose",
    ("dry-run", True): "approve",
    ("rollback", False): "rollback",
}

_T = TypeVar("_T")

_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json")
#: States of a call that has ended.
_ENDED = ("succeeded", "failed", "unknown", "unneeded")
#: Where waitress puts a function that tells if the client has disconnected.
_DISCONNECTED = "waitress.client_disconnected"
#: Set by proxies that remove a path before they pass a request on.
_PREFIX = "X-Forwarded-Prefix"
#: A path of ours behind another one, which a proxy has not removed.
_BELOW = re.compile(r"(?!/(?:api|console|docs)/)(/.+?)/(?:console|api/v0|docs|mcp)(?:/.*)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d[Tt ]", re.ASCII)


@dataclass(frozen=True)
class RequestContext:
    """An admitted request: the first argument of every route.

    Attributes:
        actor: who sent the request; the audit trail names it.
        key: the API key of the request; None where none is needed.
        chosen: the agent that the path names, if it names one; see `agent`.
        idempotency_key: the header `Idempotency-Key`; see `idempotent_id`.
        now: the time on the Redis server; None where no key is needed.
        is_gone: tells if the client has disconnected, as far as the server knows.
    """

    services: Services
    actor: Actor
    key: ApiKey | None
    chosen: AgentAccess | None
    idempotency_key: str | None
    now: datetime | None
    is_gone: Callable[[], bool]

    @property
    def agent(self) -> AgentAccess:
        """The agent that the path names."""
        assert self.chosen is not None, "only routes that concern one agent have one"
        return self.chosen

    @property
    def agents(self) -> dict[str, AgentEntry]:
        """The agents that the key may see."""
        return self.services.visible(self.key)

    def may(self, verb: Verb, action: str, target: str | None) -> Permission:
        """Judge whether the rights of the caller allow it; without a *target*, on any target."""
        return self.services.rights.judge(self.actor, verb, action, target)

    def check_right(self, verb: Verb, action: str, target: str | None) -> None:
        """Raise `HttpProblem` unless the rights of the caller allow it."""
        permission = self.may(verb, action, target)
        if not permission.allowed:
            right = describe_right(verb, action, target)
            raise HttpProblem("forbidden", permission.reason, right=right)

    def actor_with_rights(self, action: str | None = None) -> Actor:
        """The caller with the rights of its groups as its own: workers do not know those.

        With an *action*, only with those that concern it.
        """
        return self.actor.patched({"rights": self.services.rights.limits(self.actor, action)})

    def idempotent_id(self) -> str:
        """An id for a new object: the same id when the request is repeated with its key."""
        return idempotency_keys.derive_id(self.actor, self.idempotency_key)

    @property
    def repeatable_id(self) -> str | None:
        """The same id, for operations that create no object; None without `Idempotency-Key`."""
        return self.idempotent_id() if self.idempotency_key else None

    def until(self, check: Callable[[], _T | None], seconds: float | None = None) -> _T | None:
        """Wait until *check* returns a value; None when it has not in time.

        *seconds* is how long the client would wait; the setting `api.max_wait` limits it. The
        operation waited for has started already, so it goes on even if Redis fails meanwhile.
        """
        most = self.services.settings.api.max_wait
        try:
            wait = most if seconds is None else min(seconds, most)
            return self.services.changes.until(check, wait, self.is_gone)
        except StoreUnavailable:
            return None

    def stream(self, feed: EventFeed) -> Response:
        """Respond with the events of *feed* as they come; see `EventStreams.respond`."""
        key = self.key

        def is_valid(key_id: str) -> bool:
            if key is not None and key.is_identity:
                return key.expires_at is None or key.expires_at > self.services.store.clock.now()
            return self.services.store.api_keys.is_good(key_id)

        return self.services.streams.respond(feed, key.id if key else None, is_valid)

    def call_worker(self, work: CallRequest, queue: str | None, target: str | None = None) -> str:
        """Have a worker do *work*; the id of the call. Raises `HttpProblem` without a worker.

        The rights of the caller are checked here as far as the *target* is known, and by the
        worker, which knows it. An endpoint may ask for any action, so only the worker checks it.
        """
        if work.kind == "endpoint":
            work = work.patched({"actor": self.actor_with_rights()})
        else:
            self.check_right(_VERBS[work.kind, bool(work.previews)], work.action, target)
            work = work.patched({"actor": self.actor_with_rights(work.action)})
        where = queue or queues.ACT
        if not self.agent.store.fleet.serving(where):
            raise HttpProblem("no-worker", f"no live worker consumes queue {where!r}")
        size = CALL_BYTES + CALL_COPIES * len(work.to_json().encode())
        self.take_storage(size, seconds_to_keep(work))
        return self.agent.launcher.call(work, queue, self.idempotent_id())

    def take_storage(self, size: int, refill: float = DAY) -> None:
        """Take *size* bytes of the storage budget of the requester, for what Redis is to keep.

        Raises `HttpProblem` if there is not enough left of it.
        """
        limit = self.services.settings.principal_bytes
        if size > limit:
            detail = f"Redis would keep {size} bytes for it; principal_bytes allows {limit}"
            raise HttpProblem("too-large", detail)
        wait = self.services.store.storage_budget.take(self.actor.principal, size, limit, refill)
        if wait:
            detail = (
                f"the storage budget of {self.actor.principal} is used up: {size} of {limit} bytes"
                f" are free in {math.ceil(wait)} seconds; retry then, send less, or have the"
                " administrator raise principal_bytes"
            )
            raise HttpProblem("storage-budget", detail, headers=retry_after(wait))

    def await_call(self, call_id: str, seconds: float) -> Call | None:
        """The call once it has ended; None when it has not within that time."""
        calls = self.agent.store.calls

        def read_ended() -> Call | None:
            call = calls.get(call_id)
            over = call and call.execution and call.execution.state in _ENDED
            return call if over else None

        return self.until(read_ended, seconds)


class PageQuery(Model):
    """Selects a page; it may hold fewer than `limit` items and still have a `nextCursor`."""

    limit: int = Field(default=50, ge=1, le=500)
    cursor: str | None = Field(default=None, max_length=500)


class WaitQuery(Model):
    """Sets how many seconds to wait for the result; 0: not at all."""

    wait: float = Field(default=30.0, ge=0, le=3600)


def _refuse_number(value: object) -> object:
    """Refuse a number, which would be read as seconds since 1970."""
    if isinstance(value, str) and not _DATE.match(value):
        raise ValueError("should be a time such as 2026-01-05T12:00:00Z")
    return value


_Moment = Annotated[Timestamp | None, BeforeValidator(_refuse_number)]


class PeriodQuery(Model):
    """Limits a list to a period."""

    since: _Moment = None
    until: _Moment = None


def unreadable_names(key: ApiKey | None) -> list[str]:
    """The names of unreadable records that are missing in the response.

    None for a key that is limited to some agents: they may be of others.
    """
    names: list[str] = g.get("unreadable", [])
    return [] if key is not None and key.agents else names


def read_body(model: type[Model], optional: bool) -> Model | None:
    """Read the body of the request, None if optional and absent; raises `HttpProblem`."""
    text = request.get_data()
    if not text:
        if optional:
            return None
        raise HttpProblem("malformed-json", "the request has no body; a JSON object is needed")
    read_json(text)
    try:
        return model.model_validate_json(intake.to_utf8(text), by_alias=True, by_name=False)
    except ValidationError as error:
        raise invalid(error) from None


def read_json(text: bytes) -> typing.Any:
    """Parse a body as JSON of any shape that Redis can store; raises `HttpProblem`."""
    if not _JSON.fullmatch(request.mimetype):
        content_type = request.mimetype or "nothing"
        detail = f"Content-Type is {content_type}; it must be application/json"
        raise HttpProblem("unsupported-media-type", detail)
    try:
        return intake.read_json(text, MAX_VALUES)
    except intake.NotJson as error:
        raise HttpProblem("malformed-json", f"the body is {error}") from None
    except intake.BadIntake as error:
        raise HttpProblem("invalid-request", f"the body is {error}") from None


def read_disconnection() -> Callable[[], bool]:
    """Read the function that tells if the client has disconnected; without one, False."""
    is_gone: Callable[[], bool] = request.environ.get(_DISCONNECTED, lambda: False)
    return is_gone


def check_prefix() -> None:
    """Raise `HttpProblem` if a proxy serves Boyd below a path.

    Links, cookies and redirects do not know about that path.
    """
    prefix = request.headers.get(_PREFIX, "").strip().rstrip("/")
    match = _BELOW.fullmatch(request.path) if request.url_rule is None else None
    if prefix:
        raise HttpProblem("bad-request", _below_a_path(prefix))
    if match:
        raise HttpProblem("not-found", _below_a_path(match[1]))


def _below_a_path(prefix: str) -> str:
    return (
        f"a proxy serves Boyd below {prefix}, but it needs a host name of its own:"
        " let the proxy pass on / of that name, unchanged"
    )


def names_loopback() -> bool:
    """True if the request names a host that only this machine reaches."""
    try:
        return is_loopback(urlsplit(f"//{request.host}").hostname or "")
    except ValueError:
        return False


def check_encoding() -> None:
    """Raise `HttpProblem` if the body is compressed."""
    coding = request.headers.get("Content-Encoding", "").strip().lower()
    if coding not in ("", "identity"):
        raise HttpProblem(
            "unsupported-media-type",
            f"Content-Encoding is {coding}; send the body uncompressed",
            headers={"Accept-Encoding": "identity"},
        )


def read_query(model: type[Model]) -> Model:
    """Read the query; raises `HttpProblem` if a parameter is unknown, repeated or invalid."""
    params: dict[str, str] = {}
    for name, values in request.args.to_dict(flat=False).items():
        if len(values) > 1:
            error = FieldError(parameter=name, detail="is given more than once")
            raise HttpProblem("invalid-request", f"{name} is given more than once", errors=[error])
        [params[name]] = values
    try:
        # Query values are text, so numbers and truth values have to be converted.
        return model.model_validate(params, strict=False, by_alias=True, by_name=False)
    except ValidationError as error:
        raise invalid(error, query=True) from None
