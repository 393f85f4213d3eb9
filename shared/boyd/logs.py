"""Logging: text for people, JSON lines for machines; ids in every line, secrets in none."""

from __future__ import annotations

import json
import logging
import re
import sys
import warnings
from datetime import UTC, datetime
from typing import Literal

from boyd.redaction import clean

_FIELDS = ("agent", "iteration", "phase", "plugin")
#: How Celery says when it connects again; there is no last time.
_AGAIN = re.compile(r"Trying again in (\d+)\.\d+ seconds?\.\.\. \((\d+)/\w+\)", re.ASCII)


def setup_logging(level: str, style: Literal["text", "json"]) -> None:
    """Send this process's log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if style == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("boyd").setLevel(level.upper())
    logging.captureWarnings(True)
    warnings.formatwarning = _warning


def _warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """A warning of a library as a message of the log: without the line of code that gave it."""
    return f"{category.__name__}: {message}"


def _message(record: logging.LogRecord) -> str:
    """What a record says, on one line, in words that are the same for all that wait."""
    text = " ".join(record.getMessage().split())
    return _AGAIN.sub(r"trying again in \1 s (attempt \2)", text)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        ids = " ".join(f"{k}={v}" for k, v in _ids(record).items())
        line = f"{when} {record.levelname.lower():7} {_message(record)}"
        text = f"{line} [{ids}]" if ids else line
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return clean(text)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **_ids(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return clean(json.dumps(entry, default=str))


def _ids(record: logging.LogRecord) -> dict[str, object]:
    found = {name: getattr(record, name, None) for name in _FIELDS}
    return {name: value for name, value in found.items() if value is not None}
