"""Logging as text or JSON lines, with ids and without secrets."""

from __future__ import annotations

import json
import logging
import re
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, cast

from boyd.text.formatting import one_line, printable
from boyd.text.redaction import clean

_FIELDS = ("agent", "iteration", "phase", "plugin")
#: Celery's message about reconnecting, whose number of attempts is unlimited.
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


def keep_logging() -> None:
    """Let this process log again: a plugin that calls `dictConfig` silences all loggers there are.

    The handlers that a plugin sets are left to it.
    """
    logging.disable(logging.NOTSET)
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(("boyd", "celery")):
            logging.getLogger(name).disabled = False


class _CleanStream:
    """A stream that writes no secrets; what cannot be written, as on a full disk, is lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write *text* without secrets."""
        with suppress(OSError):
            self._stream.write(clean(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write *lines* without secrets."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Write what is left."""
        with suppress(OSError):
            self._stream.flush()

    close = flush  # what one function closes, others still print to

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def clean_prints() -> None:
    """Let nothing that this process prints from now on show a secret: plugins print to its log."""
    sys.stdout = cast(TextIO, _CleanStream(sys.stdout))
    sys.stderr = cast(TextIO, _CleanStream(sys.stderr))


def _warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> str:
    """Format a library's warning without the line of code."""
    return f"{category.__name__}: {message}"


def _message(record: logging.LogRecord) -> str:
    """The message on one line, with reconnection messages in a uniform wording."""
    return _AGAIN.sub(r"trying again in \1 s (attempt \2)", one_line(record.getMessage()))


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        ids = " ".join(f"{k}={v}" for k, v in _ids(record).items())
        line = f"{when} {record.levelname.lower():7} {_message(record)}"
        text = f"{line} [{ids}]" if ids else line
        if record.exc_info:
            lines = self.formatException(record.exc_info).splitlines()
            text += "".join(f"\n  {printable(line)}" for line in lines)
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
    return {it: value for it in _FIELDS if (value := getattr(record, it, None)) is not None}
