"""Filters of lists: the form in the query of a page, read as a route of the API reads it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import Generic, TypeVar
from urllib.parse import urlencode

from flask import request
from pydantic import ValidationError

from boyd.models import Model, explain, utc_now
from boyd.text.moments import parse_moment
from boyd_api.console.page_request import PageRequest

_M = TypeVar("_M", bound=Model)

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

    def written(self, name: str) -> str:
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
    given = {name: text for name, text in sent.items() if name not in _PLACE}
    try:
        now = page.ctx.now or utc_now()
        times = {
            name: parse_moment(sent[name], now, UTC).isoformat() for name in _TIMES if name in sent
        }
        query = model.model_validate(
            {**sent, **times, **fixed}, strict=False, by_alias=True, by_name=False
        )
    except ValidationError as error:
        return Filter(given, None, explain(error), request.path)
    except ValueError as error:
        return Filter(given, None, str(error), request.path)
    return Filter(given, query, "", request.path)
