"""Gives plugins what they read when an iteration was recorded, in place of the world.

What was not recorded is never guessed: it is noted as a gap, and the plugin gets an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, NoReturn, Protocol, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from boyd import errors
from boyd.errors import BoydError
from boyd.llm import model_errors
from boyd.models import ApprovalItem, PluginReads, Read, Triple, digest_of
from boyd.models.investigation import Investigation
from boyd.phases.phase_tape import ABSENT_DIGEST, call_key, short_key, state_digest
from boyd.plugin import News, State
from boyd.plugin.context import DEFAULT_TTL

_R = TypeVar("_R")
_FACTS = list[Triple]
#: The type of what each function of a reader returns.
_RESULTS: Mapping[tuple[str, str], Any] = {
    ("graph", "add"): int,
    ("graph", "remove"): bool,
    ("graph", "out"): _FACTS,
    ("graph", "into"): _FACTS,
    ("graph", "out_many"): dict[str, _FACTS],
    ("graph", "into_many"): dict[str, _FACTS],
    ("graph", "with_predicate"): _FACTS,
    ("graph", "degrees"): dict[str, int],
    ("graph", "symbols_with"): dict[str, list[str]],
    ("graph", "size"): int,
    ("graph", "revision"): int,
    ("graph", "page"): _FACTS,
    ("model", "ask"): str,
    ("model", "investigate"): Investigation,
    ("model", "find"): Investigation | None,
    ("approvals", "get"): ApprovalItem | None,
    ("approvals", "waiting"): set[str],
}
_stored = json.JSONEncoder(sort_keys=True)
_NOTES = {
    "too large": "which was too large to be recorded",
    "redacted": "of which secrets were not recorded",
    "not JSON": "which could not be recorded",
}


class Missing(Enum):
    """In place of a value of the state."""

    ABSENT = "there is none"
    UNKNOWN = "nothing tells it"
    NOT_CARRIED = "it is as recorded"


@dataclass(frozen=True)
class StateWrite:
    """A value that was written to the state, with its digest, for so many seconds."""

    value: Any
    digest: str
    ttl: float = DEFAULT_TTL

    @classmethod
    def of(cls, value: Any, ttl: float | None) -> StateWrite:
        """A value as the store keeps it, which sorts keys."""
        text = _stored.encode(value)
        return cls(json.loads(text), digest_of(text), DEFAULT_TTL if ttl is None else ttl)


_DELETION = StateWrite(Missing.ABSENT, ABSENT_DIGEST)


class StatePast(Protocol):
    """The state that earlier iterations have left behind."""

    def state_value(self, plugin_id: str, key: str, recorded: Any) -> Any:
        """The value of a key, or `Missing.NOT_CARRIED` if it is as *recorded*."""

    def note_start(self, plugin_id: str, key: str) -> None:
        """Note that a key, of which nothing was recorded, is taken to be absent."""


class RecordedPast:
    """All state is as it was recorded; implements `StatePast`."""

    def state_value(self, plugin_id: str, key: str, recorded: Any) -> Any:
        """`Missing.NOT_CARRIED`."""
        return Missing.NOT_CARRIED

    def note_start(self, plugin_id: str, key: str) -> None:
        """Nothing to note."""


class UnrecordedRead(Exception):
    """A plugin needs something that was not recorded."""


class Gaps:
    """The reasons why it cannot be told what an iteration comes to.

    Attributes:
        found: those by which its decision, or what the gate asks, cannot be told.
        late: those by which it cannot be told whether something else stops the action.
        is_late: whether the gate was passed.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin another iteration."""
        self.found: list[str] = []
        self.late: list[str] = []
        self.is_late = False

    def note(self, reason: str) -> None:
        """Note a reason."""
        (self.late if self.is_late else self.found).append(reason)

    def needs(self, reason: str) -> NoReturn:
        """Note a reason, and stop the component that caused it.

        Raises:
            UnrecordedRead: always.
        """
        self.note(reason)
        raise UnrecordedRead(reason)


class WrittenState:
    """Values that the plugins of one iteration have written to their state, by plugin and key.

    Components of a stage do not see what others of the same stage write: they may run at the same
    time.

    Attributes:
        past: what iterations before have left.
        recorded: digests of what the recorded iteration has written, by plugin.
        seen: what earlier stages have written.
    """

    def __init__(
        self, past: StatePast | None = None, recorded: Mapping[str, set[str]] | None = None
    ) -> None:
        self.past: StatePast = past or RecordedPast()
        self.recorded = recorded or {}
        self.seen: dict[tuple[str, str], StateWrite] = {}
        self._fresh: dict[tuple[str, str], StateWrite] = {}

    def next_stage(self) -> None:
        """Begin another stage."""
        self.seen |= self._fresh
        self._fresh.clear()

    def write(self, plugin_id: str, key: str, write: StateWrite) -> None:
        """Keep a value."""
        self._fresh[plugin_id, key] = write

    @property
    def all(self) -> dict[tuple[str, str], StateWrite]:
        """The last write to each key."""
        return self.seen | self._fresh


class Playback:
    """The recorded reads of one component or hook; implements `ReadWatch`.

    The clock shows each recorded look, then goes on showing the last one. Who did not look at it
    then sees the time *at* which the phase began.
    """

    def __init__(
        self,
        plugin_id: str,
        by: str,
        taped: PluginReads | None,
        at: datetime,
        gaps: Gaps,
        written: WrittenState,
    ) -> None:
        self._by = by
        self._gaps = gaps
        self._plugin_id = plugin_id
        self._looks = iter(taped.clock if taped else ())
        self._at = at
        self._reads: dict[tuple[str, str], list[Read]] = {}
        self._written = written
        self._own: dict[str, StateWrite] = {}
        self._recalled: set[tuple[str, str]] = set()
        self._reread: set[str] = set()
        self._set_values: dict[str, list[Any]] = {}
        #: Whether the state is empty of which nothing was recorded.
        self.starts_empty = False
        for read in taped.reads if taped else ():
            self._reads.setdefault((read.of, read.key), []).append(read)

    def state(self, state: State) -> State:
        """The recorded state; what is written is seen by this iteration alone."""
        return _RecordedState(self)

    def clock(self, now: Callable[[], datetime]) -> Callable[[], datetime]:
        """The recorded clock."""

        def look() -> datetime:
            self._at = next(self._looks, self._at)
            return self._at

        return look

    def reader(self, source: str, reader: _R, name: str = "") -> _R:
        """A graph, a model or approvals that answer as recorded."""
        return cast(_R, _RecordedReader(self, source, f"{name} " if name else ""))

    def note_use(self, source: str, value: Any = None) -> None:
        """Refuse HTTP, of which only the use is recorded."""
        if source == "http":
            self.refuse("uses HTTP, whose answers are not recorded")

    def playbooks(self) -> Mapping[str, list[str]]:
        """The recorded playbooks."""
        playbooks: Mapping[str, list[str]] = self.recall("playbooks", "")
        return playbooks

    def refuse(self, action: str) -> NoReturn:
        """Stop the component, which does *action*.

        Raises:
            UnrecordedRead: always.
        """
        self._gaps.needs(f"{self._by} {action}")

    def recall(self, source: str, key: str) -> Any:
        """The recorded value, `Missing.ABSENT` if there was none.

        Raises:
            UnrecordedRead: it is not known.
        """
        reads = self._reads.get((source, short_key(key)), [])
        if not reads:
            self.refuse(f"reads {source} {key}".rstrip() + ", which it did not read then")
        if len(reads) > 1 and (source, key) in self._recalled:
            self.refuse(f"reads {source} {key} again, which changed meanwhile")
        self._recalled.add((source, key))
        return self._value(reads[0])

    def state_value(self, key: str) -> Any:
        """A value of the state, `Missing.ABSENT` if there is none.

        Raises:
            UnrecordedRead: it is not known.
        """
        written = self._own.get(key) or self._written.seen.get((self._plugin_id, key))
        if written:
            return self._read_back(key, written.value)
        carried = self._past_value(key)
        if carried is not Missing.NOT_CARRIED:
            return carried
        if ("state", key) not in self._recalled:
            return self.recall("state", key)
        # Equal reads are kept once: this gave the first value, or what somebody wrote meanwhile.
        self._reread.add(key)
        return self._value(self._reads["state", short_key(key)][0])

    def _past_value(self, key: str) -> Any:
        """The value that an earlier iteration of the replay has left, unless it is as recorded.

        Raises:
            UnrecordedRead: it has left something, and nothing tells what.
        """
        reads = self._reads.get(("state", short_key(key)), [])
        recorded = value_then(reads[0]) if reads else Missing.UNKNOWN
        value = self._written.past.state_value(self._plugin_id, key, recorded)
        if value is Missing.NOT_CARRIED and self.starts_empty:
            self._written.past.note_start(self._plugin_id, key)
            return Missing.ABSENT
        if value is Missing.UNKNOWN:
            self.refuse(f"reads state {key}, which would hold something else by now")
        return value

    def note_foreign_changes(self) -> None:
        """Note the keys that were read again and held a value that this component did not set."""
        for key in sorted(self._reread):
            later = self._reads["state", short_key(key)][1:]
            written = self._set_values.get(key, [])
            if any(read.note or read.value not in written for read in later):
                reason = f"{self._by} reads state {key} again, which changed meanwhile"
                self._gaps.note(reason)

    def write(self, key: str, write: StateWrite) -> None:
        """Keep a value of the state."""
        self._own[key] = write
        self._set_values.setdefault(key, []).append(write.value)
        self._written.write(self._plugin_id, key, write)

    def swaps(self, key: str, expected: Any) -> bool:
        """Report whether a key holds the *expected* value, None if it holds none.

        Raises:
            UnrecordedRead: it is not known.
        """
        if key in self._own or self._is_carried(key):
            value = self.state_value(key)
            return bool((None if value is Missing.ABSENT else value) == expected)
        return bool(self.recall("state", f"compare_and_set {key}"))

    def check_update(self, key: str, value: Any) -> None:
        """Check that an update started from the value that was current then.

        Raises:
            UnrecordedRead: somebody else wrote meanwhile, so that the update was repeated.
        """
        reads = self._reads.get(("state", short_key(key)), [])
        is_own = key in self._own or self._is_carried(key)
        if not is_own and len(reads) > 1 and self._value(reads[1]) != value:
            self.refuse(f"updates state {key}, which others changed meanwhile")

    def _read_back(self, key: str, value: Any) -> Any:
        """A value that this replay has written; others may have written another one then."""
        reads = self._reads.get(("state", short_key(key)), [])
        if reads and value not in [self._value(read) for read in reads]:
            own = self._written.recorded.get(self._plugin_id, set())
            # The last read gave what plugins of the agent wrote then, so nobody else has written.
            if not self._is_carried(key) and state_digest(reads[-1].value) not in own:
                self.refuse(f"reads state {key}, which held something else then")
        return value

    def _is_carried(self, key: str) -> bool:
        return self._past_value(key) is not Missing.NOT_CARRIED

    def _value(self, read: Read) -> Any:
        value = value_then(read)
        if value is Missing.UNKNOWN:
            self.refuse(f"reads {read.of} {read.key}, {_NOTES[read.note or '']}")
        return value


def value_then(read: Read) -> Any:
    """The value of a read, or what it is missing for."""
    if read.note == "absent":
        return Missing.ABSENT
    return Missing.UNKNOWN if read.note else read.value


class _RecordedState:
    """Implements `State`."""

    def __init__(self, playback: Playback) -> None:
        self._playback = playback

    def get(self, key: str, default: Any = None) -> Any:
        value = self._playback.state_value(key)
        return default if value is Missing.ABSENT else value

    def get_many(self, keys: list[str]) -> dict[str, Any]:
        values = {key: self._playback.state_value(key) for key in keys}
        return {key: value for key, value in values.items() if value is not Missing.ABSENT}

    def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        self._playback.write(key, StateWrite.of(value, ttl))

    def compare_and_set(
        self, key: str, expected: Any, value: Any, ttl: float | None = None
    ) -> bool:
        swapped = self._playback.swaps(key, expected)
        if swapped:
            self._playback.write(key, StateWrite.of(value, ttl))
        return swapped

    def update(
        self,
        key: str,
        change: Callable[[Any], Any],
        ttl: float | None = None,
        *,
        news: Callable[[], Sequence[News]] | None = None,
    ) -> Any:
        current = self._playback.state_value(key)
        value = change(None if current is Missing.ABSENT else current)
        self._playback.check_update(key, value)
        self._playback.write(key, StateWrite.of(value, ttl))
        return value

    def delete(self, key: str) -> None:
        self._playback.write(key, _DELETION)


class _RecordedReader:
    """A graph, a model or approvals; each function returns or raises what it did then."""

    def __init__(self, playback: Playback, source: str, prefix: str) -> None:
        self._playback = playback
        self._source = source
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        result_type = _RESULTS.get((self._source, name))

        def call(*args: Any, **options: Any) -> Any:
            # Only `answer` is told the shape of its answer.
            kind = result_type or next(
                (argument for argument in (*args, *options.values()) if _is_model(argument)), None
            )
            key = self._prefix + call_key(self._source, name, args, options)
            answer = self._playback.recall(self._source, key)
            if _is_error(answer):
                self._fail(answer["error"])
            if kind is None:
                self._playback.refuse(f"reads all of {self._source} {self._prefix}".rstrip())
            try:
                return TypeAdapter(kind).validate_json(json.dumps(answer), extra="ignore")
            except ValidationError:
                self._playback.refuse(f"reads {self._source} {key}, which has another form now")

        return call

    def _fail(self, message: str) -> NoReturn:
        """Raise the error that the function raised then."""
        name, _, text = message.partition(": ")
        kind = getattr(model_errors, name, None) or getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, BoydError):
            raise kind(text)
        self._playback.refuse(f"reads {self._source}, which failed then: {message}")


def _is_error(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"error"}


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)
