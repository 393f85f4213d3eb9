"""The context of a phase: its agent, what its plugins may use and did read, and what failed."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from pydantic import BaseModel
from pydantic_core import to_json

from boyd.agent import Agent
from boyd.agent.agent_rules import Circumstances
from boyd.errors import Overrun, Veto
from boyd.models import (
    Change,
    Decision,
    Hold,
    NotDue,
    Phase,
    PluginReads,
    Problem,
    Read,
    Refusal,
    Situation,
    TapedPhase,
    TrackRecord,
    Triple,
    digest_of,
)
from boyd.phases import time_limit
from boyd.plugin import Action, Context, Hook, News, State
from boyd.plugin.plugin_boundary import Exited
from boyd.settings.validation import saying
from boyd.text.formatting import error_line
from boyd.text.redaction import clean, redactor

if TYPE_CHECKING:
    from boyd.phases.action_call import Confiner

#: Seconds one hook may take.
HOOK_TIMEOUT = 30.0
#: The hooks that may raise a veto.
MAY_VETO = ("on_decide", "on_before_act")
#: Maximum length of a stored error, in characters.
MAX_ERROR = 2000
#: Characters of an error that are redacted: truncated secrets would not be recognized.
_READ = 10 * MAX_ERROR

log = logging.getLogger("boyd.phases")


@dataclass(frozen=True)
class PastActions:
    """The memory of an agent's actions.

    Attributes:
        hold: the hold of an action on a target.
        record: the track record of an action in a class of situation; none outside of iterations.
    """

    hold: Callable[[str, str], Hold | None] = lambda action, target: None
    record: Callable[[str, str], TrackRecord | None] | None = None


NO_PAST_ACTIONS = PastActions()


class PhaseContext:
    """One phase of an iteration, or an action outside of one.

    Attributes:
        problems: components and hooks that failed and were skipped.
        blocks: failed guards; they block the iteration's action.
        not_due: observers skipped because their intervals have not passed.
        changes: those that hooks made to the situation.
        tape: what components and hooks read.
        confiner: makes sandboxes; without it, actions that need one do not run.
    """

    def __init__(
        self,
        agent: Agent,
        phase: Phase,
        contexts: Callable[[str, int | None], Context],
        iteration: int | None = None,
        past: PastActions = NO_PAST_ACTIONS,
        confiner: Confiner | None = None,
    ) -> None:
        """The context of *agent* in *phase*."""
        self.agent = agent
        self.host = agent.host
        self.phase: Phase = phase
        self.iteration = iteration
        self.problems: list[Problem] = []
        self.blocks: list[Refusal] = []
        self.not_due: list[NotDue] = []
        self.changes: list[Change] = []
        self.tape = Tape()
        self._contexts = contexts
        self._past = past
        self.confiner = confiner

    def context(self, plugin_id: str, by: str = "") -> Context:
        """The `ctx` of the plugin *plugin_id*.

        In the taped phases of an iteration, it records what the component or hook *by* reads.
        """
        context = self._contexts(plugin_id, self.iteration)
        if self.not_due:
            context = replace(context, not_due={late.id: late.due_at for late in self.not_due})
        taped = by and self.iteration is not None and self.phase in get_args(TapedPhase)
        return self.tape.context(context, by) if taped else context

    def prefetch_state(self) -> None:
        """Record the state that strategies may read, for a replay that chooses another one.

        It takes one read of the store per plugin with such a strategy.
        """
        if self.iteration is None:
            return
        for plugin_id, keys in self.agent.state_keys.items():
            names = [*keys]  # another thread may add one meanwhile
            if names:
                values = self._contexts(plugin_id, self.iteration).state.get_many(names)
                self.tape.keep(plugin_id, {name: values.get(name, _ABSENT) for name in names})

    def learn_state_keys(self) -> None:
        """Remember the keys that strategies have read, to prefetch them from now on."""
        for strategy in self.host.strategies.values():
            keys = self.agent.state_keys[strategy.plugin_id]
            for key in self.tape.state_keys(strategy.id):
                if len(keys) < MAX_PREFETCHED:
                    keys[key] = None

    def now(self, plugin_id: str) -> datetime:
        """The time for windows and conditions of the actions of a plugin."""
        return self.context(plugin_id).now()

    def circumstances(
        self, action: Action, decision: Decision, situation: Situation, undoes: bool = False
    ) -> Circumstances:
        """The circumstances of a decision, now; with *undoes* it is to undo the action."""

        def now() -> datetime:
            return self.now(action.plugin_id)

        return Circumstances(action, decision, situation, now, self.record, undoes)

    def hold(self, action: Action, target: str) -> Hold | None:
        """The hold of an action on a target, if there is one; it is recorded as a read."""
        bound = self.agent.may_hold(action)
        hold = self._past.hold(action.id, target)
        if hold and not bound and hold.kind != "denied":
            # Verdicts do not bind an action that is verified no more; a denial binds any.
            hold = hold if hold.in_flight and action.in_flight_limit is not None else None
        if hold or bound:
            self.tape.note(action.id, "holds", target, hold)
        return hold

    def record(self, circumstances: Circumstances) -> TrackRecord | None:
        """Return the track record of an action in such situations, if it can have one."""
        action = circumstances.action
        if self._past.record is None or not action.has("verify"):
            return None
        key, label = circumstances.situation_class.key, circumstances.situation_class.label
        record = self._past.record(action.id, key)
        if record is None:
            record = TrackRecord(action=action.id, situation=key, label=label)
        return record.patched({"label": label, "concerns": list(circumstances.scope.targets)})

    def call_all(self, calls: Sequence[time_limit.TimedCall]) -> list[time_limit.CallOutcome]:
        """Run all *calls*, side by side if possible; outcomes in their order."""
        return time_limit.call_all(calls)

    def reads(self) -> list[PluginReads]:
        """The reads of components and hooks, in a phase of which these are recorded."""
        phase = self.phase
        if phase == "orient" or phase == "decide" or phase == "act":
            return self.tape.reads(phase)
        return []

    def report(self, id: str, error: object, duration: float = 0.0) -> None:
        """Log and record that the component or hook *id* failed."""
        text = describe(error)
        log.warning("%s failed: %s", id, text, extra=self._extra())
        self.problems.append(
            Problem(id=id, phase=self.phase, error=text, duration=round(duration, 3))
        )

    def run_hooks(self, name: str, **values: Any) -> None:
        """Call the hook *name* of each plugin in turn, for those that return nothing."""
        for hook in self.host.hooks(name):
            self.hook(hook, **values)

    def hook(self, hook: Hook, **values: Any) -> Any:
        """Call one hook; None if it failed, the `Veto` if it raised one."""
        began = time.perf_counter()
        # What is read after the action decides nothing.
        by = "" if hook.name == "on_after_act" else f"{hook.plugin_id}.{hook.name}"
        ctx = self.context(hook.plugin_id, by) if "ctx" in hook.taker.takes else None
        try:
            return time_limit.call(lambda: hook(ctx=ctx, **values), HOOK_TIMEOUT)
        except Veto as veto:
            if hook.name in MAY_VETO:
                return veto
            self.report_hook(hook, f"only {' and '.join(MAY_VETO)} may veto")
            return None
        except (Exception, Overrun) as error:  # noqa: BLE001 - logged, and the loop goes on
            self.report_hook(hook, error, (time.perf_counter() - began) * 1000)
            return None

    def report_hook(self, hook: Hook, error: object, duration: float = 0.0) -> None:
        """Log and record that a hook failed; a failed guard blocks the action."""
        name = f"{hook.plugin_id}.{hook.name}"
        self.report(name, error, duration)
        if hook.fail_closed:
            reason = f"guard {name} failed: {describe(error)}"
            self.blocks.append(Refusal(by=hook.plugin_id, reason=reason, action=""))

    def _extra(self) -> dict[str, object]:
        return {"agent": self.agent.id, "iteration": self.iteration, "phase": self.phase}


def describe(error: object) -> str:
    """An error as one redacted line: its type, unless uninformative, and its message."""
    if isinstance(error, Exited):
        error = error.cause
    text = " ".join(saying(error).split())
    if isinstance(error, BaseException) and not isinstance(error, Overrun):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    # File names may hold bytes that are not UTF-8.
    text = text.encode("utf-8", "backslashreplace").decode()
    text = clean(text[:_READ])
    return text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]} …"


#: The most characters of a value, as JSON, and of all reads of a phase.
MAX_VALUE = 8_000
MAX_PHASE = 32_000
#: The most reads, also of the clock, of one component or hook.
MAX_READS = 100
MAX_CLOCK_READS = 20
#: The most keys of the state of one plugin that are prefetched.
MAX_PREFETCHED = 20
#: The most characters of a key; of a longer one a digest is kept.
MAX_KEY = 200
#: What a read takes besides its key and value, about.
_FRAME = 60
_ABSENT = object()
#: In place of a digest of what was written to the state: the key was deleted.
ABSENT_DIGEST = "absent"

#: Notes a read: its source, key and value.
Note = Callable[[str, str, Any], None]

_R = TypeVar("_R")


class Tape:
    """The reads of one phase, by component or hook."""

    def __init__(self) -> None:
        self._by: dict[str, _Notes] = {}
        self._room = _Room(MAX_PHASE)
        self._prefetched: dict[str, Mapping[str, Any]] = {}

    def context(self, ctx: Context, by: str) -> Context:
        """The context *ctx* for the component or hook *by*, which notes what that reads."""
        return ctx.with_watch(self._by.setdefault(by, _Notes(self._room)))

    def note(self, by: str, source: str, key: str, value: Any) -> None:
        """Record what was read on behalf of the component *by*; None means an absent value."""
        notes = self._by.setdefault(by, _Notes(self._room))
        notes.add(source, key, _ABSENT if value is None else value)

    def keep(self, plugin_id: str, values: Mapping[str, Any]) -> None:
        """Record the state of a plugin, unless a component reads it."""
        self._prefetched[plugin_id] = values

    def state_keys(self, by: str) -> list[str]:
        """The keys of the state that the component *by* has read."""
        notes = self._by.get(by)
        return sorted(notes.state_keys) if notes else []

    def reads(self, phase: TapedPhase) -> list[PluginReads]:
        """The reads so far, of those who read anything."""
        for plugin_id, values in self._prefetched.items():
            readers = [notes for by, notes in self._by.items() if by.startswith(f"{plugin_id}:")]
            for key, value in values.items():
                if not any(key in notes.state_keys for notes in readers):
                    self._by.setdefault(plugin_id, _Notes(self._room)).add("state", key, value)
        candidates = [notes.reads(by, phase) for by, notes in self._by.items()]
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
    if value is _ABSENT:
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
        value = self._state.get(key, _ABSENT)
        self._note_value(key, value)
        return default if value is _ABSENT else value

    def get_many(self, keys: list[str]) -> dict[str, Any]:
        values = self._state.get_many(keys)
        for key in keys:
            self._note_value(key, values.get(key, _ABSENT))
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
            self._note_value(key, _ABSENT if current is None else current)
            return change(current)

        value = self._state.update(key, note_and_change, ttl, news=news)
        self._notes.add_write(key, state_digest(value))
        return value

    def delete(self, key: str) -> None:
        self._state.delete(key)
        self._notes.add_write(key, ABSENT_DIGEST)


class _TapedReader:
    """A graph, a model or approvals; notes what each of its functions returns or raises."""

    def __init__(self, reader: Any, note: Note, source: str, prefix: str = "") -> None:
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
