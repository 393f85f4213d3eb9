"""Values of forms and filters, and parts of a page that are read on their own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import Generic, TypeVar
from urllib.parse import urlencode

from flask import request
from pydantic import ValidationError

from boyd.errors import (
    ArchiveUnavailable,
    BadCursor,
    StoreError,
    StoreUnavailable,
    TooManyMatches,
)
from boyd.models import Model, explain, utc_now
from boyd.text.formatting import parse_moment
from boyd_api.console.page_request import PageRequest
from boyd_api.http.problems import FieldError, HttpProblem, invalid, problem_of
from boyd_api.routes.approval_routes import ApprovalAnswer

_T = TypeVar("_T")


@dataclass(frozen=True)
class Part(Generic[_T]):
    """A part of a page: its value, or why it could not be read."""

    value: _T | None
    why: str = ""


def read_part(read: Callable[[], _T]) -> Part[_T]:
    """Read a part. Raises `StoreUnavailable`, without which there is no page at all."""
    try:
        return Part(read())
    except StoreUnavailable:
        raise
    except (StoreError, HttpProblem) as error:
        return Part(None, str(error))
    except (ArchiveUnavailable, BadCursor, TooManyMatches) as error:
        return Part(None, str(problem_of(error)))
    except (ValidationError, ValueError, KeyError):
        return Part(None, "what Redis holds for it cannot be read")


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
    """The value of a field that holds JSON; None if it is empty. Raises `HttpProblem`."""
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


def read_version(text: str) -> int | None:
    """The version of an approval; None if it cannot be one."""
    return int(text) if _VERSION.fullmatch(text) else None


#: Fields that people write as ages or days; times without a zone are UTC, as all of the console.
_TIMES = ("since", "until")
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


def read_filter(page: PageRequest, model: type[_M], **fixed: str) -> Filter[_M]:
    """Read the filter in the address of a page as *model*, with those *fixed* values."""
    names = [name for name in model.model_fields if name not in fixed]
    sent = {name: request.args.get(name, "").strip() for name in names}
    sent = {name: text for name, text in sent.items() if text}
    fields = {name: text for name, text in sent.items() if name not in _PLACE}
    try:
        now = page.ctx.now or utc_now()
        times = {
            name: parse_moment(sent[name], now, UTC).isoformat() for name in _TIMES if name in sent
        }
        query = model.model_validate(
            {**sent, **times, **fixed}, strict=False, by_alias=True, by_name=False
        )
    except ValidationError as error:
        return Filter(fields, None, explain(error), request.path)
    except ValueError as error:
        return Filter(fields, None, str(error), request.path)
    return Filter(fields, query, "", request.path)
