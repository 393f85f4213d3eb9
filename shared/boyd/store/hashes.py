"""Conversion between models and Redis hashes: texts stay plain, everything else is JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from boyd.errors import StoreError, StoreUnavailable, UnreadableRecord
from boyd.models import Model, from_ms

_M = TypeVar("_M", bound=Model)

_TEXT = frozenset(
    {
        *("id", "agentId", "status", "fingerprint", "actionId", "actionName", "risk"),
        *("reversibility", "situationClass"),
        *("situationSummary", "reason", "note", "actedBy", "claimedBy", "link", "queue", "undoes"),
        *("boundTo", "previews"),
        *("title", "description", "priority", "source", "approvalId", "callbackUrl", "kind"),
        "traceparent",
        *("action", "rationale", "state", "target", "by", "host", "worker", "approve", "progress"),
        *(
            "question",
            "instructions",
            "profile",
            "key",
            "askedBy",
            "ending",
            "detail",
            "text",
            "cancelledBy",
        ),
    }
)
#: Ids and principals, separated by spaces.
_LISTS = frozenset({"runIds", "requestedBy", "wakes"})
_TIMES = frozenset(
    {*("createdAt", "updatedAt", "completedAt", "expiresAt", "startedAt", "endedAt", "previewAt")}
    | {"until", "stoppedAt", "resolvedAt"}
)


def flatten(model: Model) -> list[str]:
    """A model as field, value, field, value for HSET; absent fields are left out."""
    flat: list[str] = []
    for key, value in model.to_wire().items():
        flat += [key, _text(key, value)]
    return flat


def _text(key: str, value: Any) -> str:
    if key in _LISTS:
        return " ".join(value)
    return str(value) if key in _TEXT else json.dumps(value)


def restore(kind: type[_M], fields: Mapping[str, str]) -> _M:
    """A model from the fields that `flatten` and the scripts stored.

    Unknown fields are ignored, also inside of values, because a later release may add some.
    """
    names = {field.alias or name for name, field in kind.model_fields.items()}
    values = {k: _value(k, text) for k, text in fields.items() if k in names}
    return kind.model_validate(values, extra="ignore")


def _value(key: str, text: str) -> Any:
    if key in _TIMES:
        return from_ms(float(text))
    if key in _LISTS:
        return text.split()
    return text if key in _TEXT else json.loads(text)


# A person's command, another program or a later release may have written what is in Redis: a record
# that cannot be read is named in the log, and the others are read nevertheless.

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_S = TypeVar("_S")

#: What reading a record raises that somebody else has written.
_MISTAKES = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
#: The most names that are remembered as logged, and that a list of names has.
_REMEMBERED, _LISTED = 1000, 10

_collected: ContextVar[list[str] | None] = ContextVar("boyd_unreadable", default=None)
_logged: set[str] = set()


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Name the record that the body reads, if it cannot.

    Raises:
        UnreadableRecord: it cannot.
    """
    try:
        yield
    except _MISTAKES as error:
        raise UnreadableRecord(f"{name} cannot be read: {_in_short(error)}") from error


def readable(name: str, read: Callable[[_S], _T], record: _S) -> _T | None:
    """The *record* as *read* makes it of it; None, with a note, when it cannot be read."""
    try:
        with reading(name):
            return read(record)
    except StoreUnavailable:
        raise
    except StoreError as error:
        note_unreadable(name, error)
        return None


def note_unreadable(name: str, error: object) -> None:
    """Log what was passed over, once, and add its name to those being collected."""
    names = _collected.get()
    if names is not None and name not in names and len(names) < _LISTED:
        names.append(name)
    if name in _logged:
        return
    if len(_logged) >= _REMEMBERED:
        _logged.clear()
    _logged.add(name)
    log.warning("%s is passed over: %s", name, error)


def collect_unreadable() -> list[str]:
    """The names of the records that this thread passes over from now on, at most a few."""
    names: list[str] = []
    _collected.set(names)
    return names


def _in_short(error: Any) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return " ".join(line.strip() for line in lines[:3])[:300]
