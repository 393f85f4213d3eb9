"""The journal, read with `journalctl` from a cursor on, and the patterns that are looked for."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict, Field

from boyd.models.base import Severity
from boyd.plugins.command import CommandFailed, kill_group, run, start

#: The most entries that one look reads; the next look goes on from there.
MAX_ENTRIES = 20_000
#: Characters of a message that are looked at, and that are shown.
MESSAGE, SHOWN = 4096, 200
#: The most bytes of an entry as JSON; of a longer one nothing is looked at.
MAX_LINE = 1_048_576
#: Seconds that one look may take.
READING = 20.0
#: The most units of which matches are counted.
MAX_COUNTED = 200

_UNITS = ("UNIT", "USER_UNIT", "_SYSTEMD_UNIT", "_SYSTEMD_USER_UNIT")
_FIELDS = ",".join(["MESSAGE", "_PID", *_UNITS])
#: The hint that entries are hidden from this user.
_HIDDEN = "not seeing messages"


class JournalPattern(BaseModel):
    """A pattern of messages that are trouble if a unit logs them at a rate.

    Attributes:
        name: its name in observations.
        contains: texts that a message has to contain, all of them; upper and lower case differ.
        units: patterns of the units that log it.
        count: how many matching messages of a unit within `window` seconds are too many.
        window: see `count`.
        severity: that of the observation.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=100)
    contains: list[str] = Field(min_length=1, max_length=10)
    units: list[str] = Field(default=["*"], min_length=1)
    count: int = Field(default=1, ge=1, le=200)
    window: float = Field(default=300.0, gt=0, le=86_400)
    severity: Severity = "error"

    def matches(self, entry: JournalEntry) -> bool:
        """True for a message of one of the units that contains all texts."""
        return all(text in entry.message for text in self.contains) and any(
            fnmatchcase(entry.unit, unit) for unit in self.units
        )


@dataclass(frozen=True)
class JournalEntry:
    """An entry; `at` is in seconds since the epoch."""

    cursor: str
    at: float
    unit: str
    message: str


@dataclass
class JournalReading:
    """The entries that a look found; `behind` if there is more than it may read."""

    entries: list[JournalEntry] = field(default_factory=list)
    behind: bool = False


class Journal:
    """The journal of the host, of its user, or in a folder."""

    def __init__(self, *, user: bool, folder: Path | None) -> None:
        place = [f"--directory={folder}"] if folder else ["--user"] if user else []
        self._argv = ["journalctl", "--no-pager", *place]
        self._user = user
        self._unit = "--user-unit" if user else "--unit"

    def now(self) -> float:
        """The time by the clock of this host, which its entries bear, in seconds since 1970."""
        return time.time()

    def end(self) -> str | None:
        """The cursor of the last entry; None if there is no entry.

        Raises:
            CommandFailed: the journal cannot be read.
        """
        entries = self._read(["--lines=1"], 1).entries
        return entries[-1].cursor if entries else None

    def after(self, cursor: str, most: int = MAX_ENTRIES) -> JournalReading:
        """The entries after *cursor*, the oldest first.

        Raises:
            CommandFailed: the journal cannot be read, or not all of it by this user.
        """
        return self._read([f"--after-cursor={cursor}"], most)

    def lines(self, unit: str, count: int, minutes: int) -> str:
        """The last lines of a unit as text; raises `CommandFailed`."""
        since = f"--since=-{minutes}min"
        options = ["--output=short-iso", f"--lines={count}", since, f"{self._unit}={unit}"]
        finished = run([*self._argv, *options], READING, limit=65_536)
        if finished.code:
            raise CommandFailed(f"journalctl: {finished.output[-SHOWN:]}")
        return finished.output

    def _read(self, which: Sequence[str], most: int) -> JournalReading:
        # Without --all, a message beyond 4096 bytes would be left out as a whole.
        argv = [*self._argv, "--all", "--output=json", f"--output-fields={_FIELDS}", *which]
        result, notes = JournalReading(), list[str]()
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as lines:
            with os.fdopen(writing, "wb") as output:
                process = start(argv, None, None, output)
            guard = threading.Timer(READING, kill_group, [process])
            guard.start()
            try:
                self._collect(lines, result, notes, most)
                if not result.behind:
                    process.wait(READING)
            finally:
                guard.cancel()
                if process.poll() is None:
                    kill_group(process)
        return self._check(result, " ".join(notes[:5]), process.returncode)

    @staticmethod
    def _check(result: JournalReading, message: str, code: int) -> JournalReading:
        if result.behind:
            return result
        if code < 0 and result.entries:  # the time was over
            result.behind = True
        elif code or _HIDDEN in message or (message and not result.entries):
            reason = message or ("took too long" if code < 0 else f"ended with code {code}")
            raise CommandFailed(f"journalctl: {reason}")
        return result

    def _collect(
        self, lines: IO[bytes], result: JournalReading, notes: list[str], most: int
    ) -> None:
        while line := lines.readline(MAX_LINE):
            if len(result.entries) >= most:
                result.behind = True
                return
            if line.startswith(b"{") and not line.endswith(b"\n"):  # too long, or cut off
                while (rest := lines.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                    pass
            elif line.startswith(b"{"):
                result.entries.append(_entry(json.loads(line), user=self._user))
            elif not line.startswith(b"--"):
                notes.append(line[:SHOWN].decode("utf-8", "replace").strip())


def _entry(raw: Mapping[str, Any], *, user: bool) -> JournalEntry:
    return JournalEntry(
        cursor=str(raw["__CURSOR"]),
        at=int(raw["__REALTIME_TIMESTAMP"]) / 1e6,
        unit=_unit_of(raw, user=user),
        message=_text_of(raw.get("MESSAGE"))[:MESSAGE],
    )


def _text_of(field: Any) -> str:
    """A field as text: it may be bytes, as it is not UTF-8, or there are several of its name."""
    if not isinstance(field, list):
        return str(field or "")
    if all(isinstance(part, int) for part in field):
        return bytes(field).decode("utf-8", "replace")
    return " ".join(map(_text_of, field))


def _unit_of(raw: Mapping[str, Any], *, user: bool) -> str:
    """The unit that has logged an entry, or that systemd says something about.

    Every program may set UNIT and USER_UNIT, so only those of systemd itself count; and users may
    name their units like those of the system.
    """
    if user:
        by_systemd = raw.get("_SYSTEMD_USER_UNIT") == "init.scope"
        about, owner = raw.get("USER_UNIT"), raw.get("_SYSTEMD_USER_UNIT")
    else:
        by_systemd = raw.get("_PID") == "1"
        about, owner = raw.get("UNIT"), raw.get("_SYSTEMD_UNIT")
    return str((by_systemd and about) or owner or "")


@dataclass(frozen=True)
class PatternAlarm:
    """A pattern that a unit logs too often."""

    pattern: JournalPattern
    unit: str
    matches: int


class PatternCounts:
    """Matches by pattern and unit, as kept in the state: the times of the latest ones."""

    def __init__(
        self, patterns: Iterable[JournalPattern], stored: Mapping[str, Any] | None
    ) -> None:
        self._patterns = {pattern.name: pattern for pattern in patterns}
        stored = stored or {}
        self._times: dict[str, list[float]] = {
            key: times
            for key, times in stored.get("times", {}).items()
            if key.rpartition("|")[0] in self._patterns
        }
        self._raised: set[str] = set(stored.get("raised", ())) & self._times.keys()
        #: The latest message of each key.
        self.samples: dict[str, str] = {}

    def add(self, entries: Iterable[JournalEntry]) -> None:
        """Count the entries that match."""
        for entry in entries:
            for name, pattern in self._patterns.items():
                key = f"{name}|{entry.unit}"
                is_counted = key in self._times or len(self._times) < MAX_COUNTED
                if is_counted and pattern.matches(entry):
                    self._times[key] = [*self._times.get(key, ()), entry.at][-pattern.count :]
                    self.samples[key] = entry.message[:SHOWN]

    def alarms(self, now: float) -> Iterator[PatternAlarm]:
        """Yield the alarms; one ends when at most half as many matches are left in its window."""
        for key, times in sorted(self._times.items()):
            name, _, unit = key.rpartition("|")
            pattern = self._patterns[name]
            recent = [at for at in times if now - at <= pattern.window]
            is_raised = len(recent) >= pattern.count or (
                key in self._raised and 2 * len(recent) > pattern.count
            )
            if is_raised:
                self._raised.add(key)
                yield PatternAlarm(pattern, unit, len(recent))
            else:
                self._raised.discard(key)
                if not recent:
                    del self._times[key]

    def to_state(self) -> dict[str, Any]:
        """The counts, to be kept in the plugin's state."""
        return {"times": self._times, "raised": sorted(self._raised)}
