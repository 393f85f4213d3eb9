"""Conversion between models and Redis hashes: texts stay plain, everything else is JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

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
    known = {field.alias or name for name, field in kind.model_fields.items()}
    values = {k: _value(k, text) for k, text in fields.items() if k in known}
    return kind.model_validate(values, extra="ignore")


def _value(key: str, text: str) -> Any:
    if key in _TIMES:
        return from_ms(float(text))
    if key in _LISTS:
        return text.split()
    return text if key in _TEXT else json.loads(text)
