"""Parts of a page that are read on their own, so that a broken one leaves the others whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import ValidationError

from boyd.errors import (
    ArchiveUnavailable,
    BadCursor,
    StoreError,
    StoreUnavailable,
    TooManyMatches,
)
from boyd_api.http.problems import HttpProblem, problem_of

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
