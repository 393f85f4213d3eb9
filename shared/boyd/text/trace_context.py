"""The trace context of W3C: `traceparent` as callers send it."""

from __future__ import annotations

import re
from typing import NamedTuple

#: What a header or an event may hold; later versions may append more.
PATTERN = r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$"
#: The most characters of a `traceparent`.
LONGEST = 200
_FORM = re.compile(PATTERN)
#: The characters of one of version 00.
_FIRST_LENGTH = 55


class TraceContext(NamedTuple):
    """A span of another system."""

    trace_id: int
    span_id: int


def parse_traceparent(text: object) -> TraceContext | None:
    """Return the span that a `traceparent` names, or None if it is invalid and to be ignored."""
    if not isinstance(text, str) or len(text) > LONGEST or not _FORM.match(text):
        return None
    version, trace_id, span_id = text.split("-")[:3]
    longer = len(text) > _FIRST_LENGTH
    if version == "ff" or (version == "00" and longer):
        return None
    context = TraceContext(int(trace_id, 16), int(span_id, 16))
    return context if context.trace_id and context.span_id else None
