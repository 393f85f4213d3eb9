"""Refused intake is logged and counted, so that nothing is lost unnoticed."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable

from boyd.intake import format_names
from boyd_api.metrics import Metrics

log = logging.getLogger("boyd.api")

#: Seconds between two lines about refusals of one kind: a storm must not fill the disk.
QUIET = 10.0
#: Reasons that are counted from 0 on: a counter that begins with 1 has not grown, for Prometheus.
REASONS = (
    *("overloaded", "invalid-request", "malformed-json", "too-large", "unsupported-media-type"),
    *("forbidden", "not-found", "internal", "unavailable"),
)
#: What a format is called that nobody has installed.
UNKNOWN = "unknown"


class Refusals:
    """Logs and counts refusals; a line for each format and reason every `QUIET` seconds."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        for format in (*format_names(), UNKNOWN):
            for reason in REASONS:
                metrics.refused(format, reason, 0)
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], float] = {}
        self._unsaid: defaultdict[tuple[str, str], int] = defaultdict(int)

    def note(self, format: str, reason: str, detail: str) -> None:
        """Note that a request was refused.

        Args:
            format: that it was sent to.
            reason: the name of the problem that it was answered with.
            detail: what was wrong, and who sent it.
        """
        kind = (format if format in format_names() else UNKNOWN, reason)
        self._metrics.refused(*kind)
        unsaid = self._due(kind)
        if unsaid is not None:
            more = f" (and {unsaid} more since the last such line)" if unsaid else ""
            log.warning("intake %s refused, %s: %s%s", *kind, detail[:500], more)

    def _due(self, kind: tuple[str, str]) -> int | None:
        """How many were not logged before this one; None: this one is not either."""
        with self._lock:
            now = self._clock()
            if now - self._last.get(kind, -QUIET) < QUIET:
                self._unsaid[kind] += 1
                return None
            self._last[kind] = now
            return self._unsaid.pop(kind, 0)
