"""A request for a page: what a view knows of it, and reads from its forms and filters."""

from __future__ import annotations

import hmac
import json
import logging
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import Generic, TypeVar
from urllib.parse import urlencode
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from flask import g, request
from pydantic import ValidationError

from boyd.errors import (
    ArchiveUnavailable,
    BadCursor,
    StoreError,
    StoreUnavailable,
    TooManyMatches,
)
from boyd.models import ApiKey, ApprovalItem, Model, Scope, explain, utc_now
from boyd.text.formatting import parse_moment
from boyd_api.console.session import VISITOR, BrowserSession, cookie_value
from boyd_api.http.problems import FieldError, HttpProblem, invalid, problem_of
from boyd_api.http.request_context import RequestContext
from boyd_api.http.services import Services
from boyd_api.routes.acknowledgement_routes import LONGEST
from boyd_api.routes.approval_routes import ApprovalAnswer

log = logging.getLogger("boyd.api")

#: The path of the console, and its first page.
BASE = "/console"
HOME = f"{BASE}/"


def new_nonce() -> str:
    """A number that is used once, which marks the scripts and styles of one response as ours."""
    return secrets.token_urlsafe(16)


@dataclass(frozen=True)
class PageRequest:
    """An admitted request for a page: the first argument of every view.

    Attributes:
        ctx: the same as a route of the API receives, so that pages can call the routes' functions.
        session: the session of the browser; None where none is needed.
    """

    ctx: RequestContext
    session: BrowserSession | None
    nonce: str = field(default_factory=new_nonce)

    @property
    def services(self) -> Services:
        """The services of this process."""
        return self.ctx.services

    @property
    def key(self) -> ApiKey | None:
        """The identity of the reader; None where none is needed."""
        return self.ctx.key

    @property
    def is_stale(self) -> bool:
        """True if the last login is too long ago for what is dangerous."""
        return self.session is not None and not self.session.is_fresh

    def needs_login(self, item: ApprovalItem, verb: str) -> bool:
        """True for the approval of a risky item by a login that is no longer recent."""
        return verb == "approve" and item.is_risky and item.status == "pending" and self.is_stale

    @property
    def is_live(self) -> bool:
        """True when the page refreshes itself, so that only its changing part is sent."""
        return "HX-Request" in request.headers

    @property
    def here(self) -> str:
        """The address of this page, with its query."""
        return request.full_path.rstrip("?") if request.method == "GET" else referring_page()

    @property
    def agent_id(self) -> str:
        """The id of the agent in the page's path; empty on pages about all agents."""
        return self.ctx.chosen.entry.id if self.ctx.chosen else ""

    @property
    def section(self) -> str:
        """The navigation entry to highlight."""
        return (request.endpoint or "").partition(".")[2].partition("_")[0]

    @property
    def once(self) -> str:
        """An id by which a form that is sent twice is answered once."""
        return secrets.token_hex(16)

    @cached_property
    def csrf(self) -> str:
        """The CSRF token of the session, a hidden field of each form."""
        return csrf_token()

    def allows(self, scope: Scope) -> bool:
        """Check that the reader has *scope*."""
        return self.key is None or self.key.allows(scope)

    def lacks(self, scope: Scope, *, everywhere: bool = False) -> str:
        """The reason for denying the reader *scope*, also *everywhere*; empty if they have it."""
        key = self.key
        if key is None:
            return ""
        if not key.allows(scope):
            return f"your key {key.name!r} lacks the scope {scope!r}"
        if everywhere and key.agents:
            limit = ", ".join(key.agents)
            return f"it concerns all agents, and your key {key.name!r} is limited to {limit}"
        return ""

    def of(self, agent_id: str) -> PageRequest:
        """Copy the request for a page about an agent. Raises `UnknownAgent`."""
        chosen = self.services.agent(agent_id, self.ctx.key)
        return replace(self, ctx=replace(self.ctx, chosen=chosen))


def csrf_token() -> str:
    """The token of this browser: it follows from the secret in its cookie."""
    secret = cookie_value() or g.get("visitor") or cookie_value(VISITOR)
    if not secret:
        secret = g.visitor = secrets.token_urlsafe(32)
    return hmac.new(secret.encode(), b"csrf", sha256).hexdigest()


def referring_page() -> str:
    """The page whose form was sent: its hidden field names it."""
    return local_path(request.form.get("page", ""))


def local_path(path: str) -> str:
    """*path* if it is one of the console's own, else its first page."""
    is_own = path.startswith(HOME) and path.isprintable() and "\\" not in path
    return path if is_own else HOME


_T = TypeVar("_T")


@dataclass(frozen=True)
class Part(Generic[_T]):
    """A part of a page: its value, or why it could not be read."""

    value: _T | None
    why: str = ""


def read_part(read: Callable[[], _T]) -> Part[_T]:
    """Read a part; one that cannot be read takes only its own place.

    Raises:
        StoreUnavailable: Redis is away, and there is no page at all.
    """
    try:
        return Part(read())
    except StoreUnavailable:
        raise
    except (StoreError, HttpProblem) as error:
        return Part(None, str(error))
    except (ArchiveUnavailable, BadCursor, TooManyMatches) as error:
        return Part(None, str(problem_of(error)))
    except (ValueError, KeyError):
        log.exception("a part of the page %s cannot be read", request.path)
        return Part(None, "the log of the API has details")


_M = TypeVar("_M", bound=Model)

_VERSION = re.compile(r"[0-9]{1,15}", re.ASCII)


def read_form(model: type[_M], /, **values: object) -> _M:
    """The model with these values; empty ones are left out. Raises `HttpProblem`."""
    fields = {name: value for name, value in values.items() if value not in ("", None)}
    try:
        # Forms send text, so numbers have to be converted.
        return model.model_validate(fields, strict=False, by_alias=False, by_name=True)
    except ValidationError as error:
        raise invalid(error, query=True) from None


def read_json_field(name: str, text: str) -> object:
    """Parse a field as JSON; an empty one is None.

    Raises:
        HttpProblem: it is not JSON.
    """
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        wrong = FieldError(parameter=name, detail=f"it is not JSON: {error}")
        raise HttpProblem(
            "invalid-request", f"{name}: it is not JSON: {error}", errors=[wrong]
        ) from None


def read_note() -> str:
    """The note to an answer, no longer than the API takes it. Raises `HttpProblem`."""
    # Forms send a line break as two characters, and text fields count it as one.
    text = request.form.get("note", "").replace("\r\n", "\n").strip()
    return read_form(ApprovalAnswer, note=text).note or ""


def read_seconds() -> float | None:
    """Seconds until an acknowledgement lapses, if it does. Raises `HttpProblem`."""
    text = request.form.get("minutes", "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > 5 or not 0 < int(text) * 60 <= LONGEST:
        raise HttpProblem("bad-request", "the form is not one of this page: open it again")
    return int(text) * 60.0


def read_version(text: str) -> int | None:
    """The version of an approval; None if it cannot be one."""
    return int(text) if _VERSION.fullmatch(text) else None


#: Fields that people write as ages or days, and the one with the zone of those that name none.
_TIMES = ("since", "until")
_ZONE = "zone"
#: Fields that select a page of what was filtered.
_PLACE = ("cursor", "limit")


@dataclass(frozen=True)
class Filter(Generic[_M]):
    """A filter as it was written, and the query that it means.

    Attributes:
        given: the fields that are not empty, as written.
        query: what they mean; None if they are wrong, and `problem` says why.
        path: the page that they filter.
    """

    given: dict[str, str]
    query: _M | None
    problem: str
    path: str

    @property
    def is_open(self) -> bool:
        """True if nothing is filtered."""
        return not self.given

    def text_of(self, name: str) -> str:
        """The text in a field, as written."""
        return self.given.get(name, "")

    def link(self, path: str = "", **more: str) -> str:
        """The address with the same filter and *more*, of this page or *path*."""
        query = urlencode({**self.given, **more})
        return f"{path or self.path}?{query}" if query else path or self.path


def _read_times(sent: Mapping[str, str], now: datetime) -> dict[str, str]:
    """The fields with a time as times in full. Raises `ValueError`."""
    texts = {name: sent[name] for name in _TIMES if name in sent}
    try:
        zone = ZoneInfo(_zone_name())
    except (ValueError, ZoneInfoNotFoundError, OSError):
        raise ValueError(f"there is no time zone {_zone_name()!r}") from None
    return {name: parse_moment(text, now, zone).isoformat() for name, text in texts.items()}


def _zone_name() -> str:
    return request.args.get(_ZONE, "").strip() or "UTC"


def read_filter(page: PageRequest, model: type[_M], **fixed: str) -> Filter[_M]:
    """Read the filter in the address of a page as *model*, with those *fixed* values."""
    names = [name for name in model.model_fields if name not in fixed]
    sent = {name: request.args.get(name, "").strip() for name in names}
    sent = {name: text for name, text in sent.items() if text}
    fields = {name: text for name, text in sent.items() if name not in _PLACE}
    try:
        times = _read_times(sent, page.ctx.now or utc_now())
        if times and _ZONE in request.args:
            fields[_ZONE] = _zone_name()
        query = model.model_validate(
            {**sent, **times, **fixed}, strict=False, by_alias=True, by_name=False
        )
    except ValidationError as error:
        return Filter(fields, None, explain(error), request.path)
    except ValueError as error:
        return Filter(fields, None, str(error), request.path)
    return Filter(fields, query, "", request.path)
