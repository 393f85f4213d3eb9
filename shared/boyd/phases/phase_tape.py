"""The tape of a phase: what components and hooks read, and what they wrote to their state.

A replay gives changed components the same values again.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar, cast

from pydantic import BaseModel
from pydantic_core import to_json

from boyd.models import PluginReads, Read, TapedPhase, Triple, digest_of
from boyd.plugin import Context, News, State
from boyd.text.formatting import error_line
from boyd.text.redaction import redactor

#: The most characters of a value, as JSON, and of all reads of a phase.
MAX_VALUE = 8_000
MAX_PHASE = 32_000
#: The most reads, also of the clock, of one component or hook.
MAX_READS = 100
MAX_CLOCK_READS = 20
#: The most characters of a key; of a longer one a digest is kept.
MAX_KEY = 200
#: What a read takes besides its key and value, about.
_FRAME = 60
#: In place of a value: there is none.
ABSENT = object()
#: In place of a digest of what was written to the state: the key was deleted.
ABSENT_DIGEST = "absent"

#: Notes a read: its source, key and value.
_Note = Callable[[str, str, Any], None]
_R = TypeVar("_R")


class Tape:
    """The reads of one phase, by component or hook."""

    def __init__(self, phase: TapedPhase) -> None:
        self._phase = phase
        self._by: dict[str, _Notes] = {}
        self._room = _Room(MAX_PHASE)
        self._prefetched: dict[str, Mapping[str, Any]] = {}

    def context(self, ctx: Context, by: str) -> Context:
        """The context *ctx* for the component or hook *by*, which notes what that reads."""
        notes = self._by.setdefault(by, _Notes(self._room))
        state, clock = notes.state(ctx.state), notes.clock(ctx.now)
        return replace(ctx, state=state, now=clock, _watch=notes)

    def note(self, by: str, source: str, key: str, value: Any) -> None:
        """Record what was read on behalf of the component *by*; None means an absent value."""
        notes = self._by.setdefault(by, _Notes(self._room))
        notes.add(source, key, ABSENT if value is None else value)

    def keep(self, plugin_id: str, values: Mapping[str, Any]) -> None:
        """Record the state of a plugin, unless a component reads it."""
        self._prefetched[plugin_id] = values

    def state_keys(self, by: str) -> list[str]:
        """The keys of the state that the component *by* has read."""
        notes = self._by.get(by)
        return sorted(notes.state_keys) if notes else []

    def reads(self) -> list[PluginReads]:
        """The reads so far, of those who read anything."""
        for plugin_id, values in self._prefetched.items():
            readers = [notes for by, notes in self._by.items() if by.startswith(f"{plugin_id}:")]
            for key, value in values.items():
                if not any(key in notes.state_keys for notes in readers):
                    self._by.setdefault(plugin_id, _Notes(self._room)).add("state", key, value)
        candidates = [notes.reads(by, self._phase) for by, notes in self._by.items()]
        reads = [
            part for part in candidates if part.clock or part.reads or part.writes or part.omitted
        ]
        # One search in all of them: most phases read no secret.
        plain = [[read.key, read.value] for part in reads for read in part.reads]
        keys = [key for part in reads for key in part.writes]
        if not (plain or keys) or redactor().is_safe([plain, keys]):
            return reads
        return list(map(_redact, reads))


class _Room:
    """The characters that the reads of a phase may still take."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.lock = threading.Lock()


class _Notes:
    """The reads of one component or hook; implements `boyd.plugin.Watch`."""

    def __init__(self, room: _Room) -> None:
        self._room = room
        self._clock: list[datetime] = []
        self._reads: list[Read] = []
        self._writes: dict[str, str] = {}
        self._omitted = 0
        self.state_keys: set[str] = set()

    def reads(self, by: str, phase: TapedPhase) -> PluginReads:
        """The reads so far."""
        with self._room.lock:
            return PluginReads(
                by=by,
                phase=phase,
                clock=list(self._clock),
                reads=list(self._reads),
                writes=dict(self._writes),
                omitted=self._omitted,
            )

    def state(self, state: State) -> State:
        """A state that notes what is read."""
        return _TapedState(state, self)

    def clock(self, now: Callable[[], datetime]) -> Callable[[], datetime]:
        """A clock that notes each time it gives."""

        def read_clock() -> datetime:
            at = now()
            with self._room.lock:
                if len(self._clock) < MAX_CLOCK_READS:
                    self._clock.append(at)
                else:
                    self._omitted += 1
            return at

        return read_clock

    def reader(self, source: str, reader: _R, name: str = "") -> _R:
        """A graph *name*, a model or approvals, whose functions note what they return."""
        return cast(_R, _TapedReader(reader, self.add, source, f"{name} " if name else ""))

    def note_use(self, source: str, value: Any = None) -> None:
        """Note that *source* was used."""
        self.add(source, "", value)

    def add_write(self, key: str, digest: str) -> None:
        """Note the digest of what was written to a key of the state last."""
        key = short_key(key)
        with self._room.lock:
            size = 0 if key in self._writes else len(key) + _FRAME
            if len(self._writes) < MAX_READS and size <= self._room.left:
                self._writes[key] = digest
                self._room.left -= size
            else:
                self._omitted += 1

    def add(self, source: str, key: str, value: Any) -> None:
        """Note a read; whatever the value is, the plugin does not notice."""
        with suppress(Exception):
            read, size = _read(source, key, value, self._room.left)
            with self._room.lock:
                if read in self._reads:
                    return
                if len(self._reads) >= MAX_READS or size > self._room.left:
                    self._omitted += 1
                    return
                self._reads.append(read)
                self._room.left -= size


def _read(source: str, key: str, value: Any, left: int) -> tuple[Read, int]:
    """A read, and its size in characters; its value may take up to *left*."""
    key = short_key(key)
    if value is ABSENT:
        return _make_read(source, key, note="absent"), len(key) + _FRAME
    try:
        text = _text(value)
        if len(text) > min(MAX_VALUE, left - len(key) - _FRAME):
            read = _make_read(source, key, note="too large", digest=digest_of(text))
            return read, len(key) + _FRAME
        read = _make_read(source, key, value=json.loads(text))
        return read, len(key) + len(text) + _FRAME
    except Exception:  # noqa: BLE001 - a value that nothing can be told of
        return _make_read(source, key, note="not JSON"), len(key) + _FRAME


def _redact(reads: PluginReads) -> PluginReads:
    """Reads and writes without secrets."""
    writes = {redactor().redact_json(key): digest for key, digest in reads.writes.items()}
    return reads.patched({"reads": list(map(_redact_read, reads.reads)), "writes": writes})


def _redact_read(read: Read) -> Read:
    key, value = redactor().redact_json([read.key, read.value])
    note = read.note if value == read.value else "redacted"
    return read.patched({"key": key, "value": value, "note": note})


def state_digest(value: Any) -> str:
    """The digest by which the tape tells what was written to the state, as the store has it."""
    return digest_of(json.dumps(value, sort_keys=True))


def _make_read(source: str, key: str, **fields: Any) -> Read:
    return Read.model_validate({"of": source, "key": key, **fields})


def _text(value: Any) -> str:
    """A value as JSON text, equal for equal values."""
    value = sorted(value) if isinstance(value, set | frozenset) else value
    return to_json(value, by_alias=True, exclude_none=True, fallback=_describe).decode()


def _describe(value: Any) -> Any:
    """A value that is not JSON: a schema by its content, anything else by its name."""
    if isinstance(value, type) and issubclass(value, BaseModel):
        return value.model_json_schema()
    if isinstance(value, type):
        return value.__qualname__
    raise TypeError(f"{type(value).__name__} is not JSON")


def call_key(source: str, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> str:
    """The key of a call: the function with its arguments, or their digest."""
    arguments: list[Any] = [*args, *([options] if options else [])]
    try:
        text = _text(arguments) if arguments else ""
    except Exception:  # noqa: BLE001 - arguments that are no data
        text = "…"
    # A prompt is long, and may quote anything.
    text = digest_of(text) if source == "model" or len(text) > MAX_KEY // 2 else text
    return f"{name} {text}".rstrip()


def short_key(key: str) -> str:
    """A key as it is kept: a long one as its digest."""
    return key if len(key) <= MAX_KEY else digest_of(key)


class _TapedState:
    """Implements `State`, noting what is read and written."""

    def __init__(self, state: State, notes: _Notes) -> None:
        self._state = state
        self._notes = notes

    def get(self, key: str, default: Any = None) -> Any:
        value = self._state.get(key, ABSENT)
        self._note_value(key, value)
        return default if value is ABSENT else value

    def get_many(self, keys: list[str]) -> dict[str, Any]:
        values = self._state.get_many(keys)
        for key in keys:
            self._note_value(key, values.get(key, ABSENT))
        return values

    def _note_value(self, key: str, value: Any) -> None:
        self._notes.state_keys.add(key)
        self._notes.add("state", key, value)

    def set(self, key: str, value: Any, ttl: float | None = None) -> None:
        self._state.set(key, value, ttl)
        self._notes.add_write(key, state_digest(value))

    def compare_and_set(
        self, key: str, expected: Any, value: Any, ttl: float | None = None
    ) -> bool:
        swapped = self._state.compare_and_set(key, expected, value, ttl)
        self._notes.add("state", f"compare_and_set {key}", swapped)
        if swapped:
            self._notes.add_write(key, state_digest(value))
        return swapped

    def update(
        self,
        key: str,
        change: Callable[[Any], Any],
        ttl: float | None = None,
        *,
        news: Callable[[], Sequence[News]] | None = None,
    ) -> Any:
        def note_and_change(current: Any) -> Any:
            self._note_value(key, ABSENT if current is None else current)
            return change(current)

        value = self._state.update(key, note_and_change, ttl, news=news)
        self._notes.add_write(key, state_digest(value))
        return value

    def delete(self, key: str) -> None:
        self._state.delete(key)
        self._notes.add_write(key, ABSENT_DIGEST)


class _TapedReader:
    """A graph, a model or approvals; notes what each of its functions returns or raises."""

    def __init__(self, reader: Any, note: _Note, source: str, prefix: str = "") -> None:
        self._reader = reader
        self._note = note
        self._source = source
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._reader, name)

        def call(*args: Any, **options: Any) -> Any:
            key = self._prefix + call_key(self._source, name, args, options)
            try:
                answer = function(*args, **options)
            except Exception as error:
                self._note(self._source, key, {"error": error_line(error)})
                raise
            if isinstance(answer, Iterator):
                return self._digest_facts(key, answer)
            self._note(self._source, key, answer)
            return answer

        return call if callable(function) else function

    def _digest_facts(self, key: str, facts: Iterator[Triple]) -> Iterator[Triple]:
        """Read all facts of a graph; the tape gets only their digest."""
        digest, count = hashlib.sha256(), 0
        for fact in facts:
            digest.update(repr(fact).encode("utf-8", "surrogatepass"))
            count += 1
            yield fact
        self._note(self._source, key, {"facts": count, "digest": digest.hexdigest()[:16]})
