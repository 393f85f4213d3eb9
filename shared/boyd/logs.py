"""Logging: text for people, JSON lines for machines; ids in every line, secrets in none."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Literal

from boyd.redaction import redactor

_FIELDS = ("agent", "iteration", "phase", "plugin")
_SECRET = re.compile(r"(://[^\s:/@]*):[^\s@/]+@")
_QUERY = re.compile(r"([?&]\w*password=)[^\s&\"']+")


def setup_logging(level: str, style: Literal["text", "json"]) -> None:
    """Send this process's log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if style == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("boyd").setLevel(level.upper())


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        ids = " ".join(f"{k}={v}" for k, v in _ids(record).items())
        line = f"{when} {record.levelname.lower():7} {record.getMessage()}"
        text = f"{line} [{ids}]" if ids else line
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return _clean(text)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_ids(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return _clean(json.dumps(entry, default=str))


def _ids(record: logging.LogRecord) -> dict[str, object]:
    found = {name: getattr(record, name, None) for name in _FIELDS}
    return {name: value for name, value in found.items() if value is not None}


def _clean(text: str) -> str:
    """A text without passwords of URLs and other secrets."""
    return redactor().redact(masked(text))


def masked(text: str) -> str:
    """A text in which no URL carries a password."""
    return _QUERY.sub(r"\1***", _SECRET.sub(r"\1:***@", text))
