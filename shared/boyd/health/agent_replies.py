"""Questions to Redis about an agent, in two rounds, and the work that the replies describe.

The source of a field names the questions that it needs, so that one round trip asks those of all
fields of all agents. Times are seconds since the epoch on the Redis server's clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any

import redis

from boyd import naming
from boyd.errors import UnreadableRecord
from boyd.models import LEVELS, Hold, ObserverHealth
from boyd.store.fleet import AgentEntry
from boyd.store.hashes import readable
from boyd.store.holds import read_hold
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, read_int
from boyd.text import queues

#: Seconds past its deadline, or without one, after which an iteration is stuck.
STUCK = 10.0
#: Due members to read per agent, earliest first.
_STEPS = 50
#: Held actions to read per agent, the longest first.
_HOLDS = 100
#: The score that each level of urgency adds to a pending run in `submit_run`.
_URGENCY = 1e13
_JOB = ("executionState", "queuedAt", "queue")
#: Descriptions of the jobs that somebody waits for, by the beginning of their names.
_JOBS = {
    "approval": "an approved action",
    "call": "a call",
    "delivery": "a notification",
    "verify": "a verification",
    "wait": "a look at a case that waits",
    "procedure": "a procedure",
}

#: Adds a command to a pipeline.
Command = Callable[[Client], Any]


@dataclass(frozen=True)
class InFlightIteration:
    """The iteration in flight, as a sweeper finds it.

    Attributes:
        since: the start of its phase.
        is_swept: whether it is among the due members that sweepers check.
        deadline: the time when it becomes overdue, if known.
    """

    since: float
    is_swept: bool
    deadline: float | None

    def is_stuck(self, now: float) -> bool:
        """Report whether it has been stuck for longer than any sweeper allows."""
        if not self.is_swept:
            return now - self.since > STUCK
        return self.deadline is not None and now - self.deadline > STUCK


@dataclass(frozen=True)
class WaitingWork:
    """A step that waits for a worker to take it from `queue`."""

    what: str
    queue: str
    since: float


@dataclass(frozen=True)
class WaitingApproval:
    """A pending approval: its id, what approving it does, and the target, which may be empty."""

    id: str
    title: str
    target: str


@dataclass(frozen=True)
class StoppedProcedure:
    """A procedure that waits for a person: its id, what it does, its target, and why it stopped.

    The target may be empty.
    """

    id: str
    action: str
    target: str
    reason: str
    since: float


@dataclass(frozen=True)
class LastIteration:
    """The last iteration that ended; `success` is None when its record is gone."""

    iteration: int
    at: float
    success: bool | None


def oldest_by_queue(steps: Iterable[WaitingWork]) -> dict[str, float]:
    """The time since which the oldest step has been waiting, by queue."""
    oldest: dict[str, float] = {}
    for step in steps:
        oldest[step.queue] = min(step.since, oldest.get(step.queue, step.since))
    return oldest


@dataclass(frozen=True, eq=False)
class AgentQuestion:
    """A command about one key of the agent; `key` is an attribute of `Keys`."""

    key: str
    ask: Callable[[Client, str, AgentReplies], Any]


@dataclass(frozen=True)
class FieldSource:
    """The source of a field of an agent.

    Attributes:
        read: its value, from the replies.
        fields: the fields of hashes that it needs, each with the hash's attribute of `Keys`.
        questions: what else it needs of the first round.
        details: what it needs of the second round, from the replies of the first.
    """

    read: Callable[[AgentReplies], Any]
    fields: tuple[tuple[str, str], ...] = ()
    questions: tuple[AgentQuestion, ...] = ()
    details: Callable[[AgentReplies], Mapping[Hashable, Command]] = lambda _: {}


@dataclass(frozen=True, eq=False)
class _HashQuestion:
    """The question for some fields of a hash, which several fields of health share."""

    key: str
    names: tuple[str, ...]

    def ask(self, pipe: Client, key: str, _: AgentReplies) -> None:
        """Ask for the fields."""
        pipe.hmget(key, self.names)


def first_round(sources: Iterable[FieldSource]) -> list[AgentQuestion | _HashQuestion]:
    """The questions of the first round, each once."""
    hashes: dict[str, dict[str, None]] = {}
    questions: dict[AgentQuestion, None] = {}
    for source in sources:
        questions |= dict.fromkeys(source.questions)
        for key, name in source.fields:
            hashes.setdefault(key, {})[name] = None
    return [*(_HashQuestion(key, tuple(names)) for key, names in hashes.items()), *questions]


@dataclass
class AgentReplies:
    """The replies about one agent, in which an error stands for a key of another type.

    The methods that read one raise `UnreadableRecord` for such an error.

    Attributes:
        entry: the agent as its workers announce it.
        now: the Redis server's time.
        freezes: the freeze marks of the deployment, by scope.
    """

    entry: AgentEntry
    now: float
    freezes: Mapping[str, str] = field(default_factory=dict)
    _first: dict[Hashable, Any] = field(default_factory=dict)
    _second: Mapping[Hashable, Any] = field(default_factory=dict)

    def commands(
        self, questions: Iterable[AgentQuestion | _HashQuestion]
    ) -> dict[Hashable, Command]:
        """The commands of the first round."""
        keys = Keys(self.entry.id)
        return {it: partial(self._ask, it, getattr(keys, it.key)) for it in questions}

    def details(self, sources: Iterable[FieldSource]) -> dict[Hashable, Command]:
        """The commands of the second round."""
        return {name: ask for source in sources for name, ask in source.details(self).items()}

    def take_first(self, replies: Mapping[Hashable, Any]) -> None:
        """Take the replies of the first round."""
        for question, reply in replies.items():
            if isinstance(question, _HashQuestion):
                texts = repeat(reply) if isinstance(reply, redis.RedisError) else reply
                names = zip(question.names, texts, strict=False)
                self._first |= {(question.key, name): text for name, text in names}
            else:
                self._first[question] = reply

    def take_second(self, replies: Mapping[Hashable, Any]) -> None:
        """Take the replies of the second round."""
        self._second = replies

    def hash_field(self, key: str, name: str) -> str | None:
        """A field of a hash."""
        text: str | None = _check_reply(key, self._first[key, name])
        return text

    def reply(self, question: AgentQuestion) -> Any:
        """The reply to a question of the first round."""
        return _check_reply(question.key, self._first[question])

    def detail(self, name: Hashable) -> Any:
        """A reply of the second round; None for what was not asked."""
        return _check_reply(str(name), self._second.get(name))

    def _ask(self, question: AgentQuestion | _HashQuestion, key: str, pipe: Client) -> None:
        question.ask(pipe, key, self)


def hash_fields(key: str, *names: str) -> Command:
    """The command that reads fields of a hash."""
    return lambda pipe: pipe.hmget(key, names)


def _check_reply(name: str, reply: Any) -> Any:
    if isinstance(reply, redis.RedisError):
        raise UnreadableRecord(f"{name}: {reply}")
    return reply


# Sources


def hash_field(
    key: str, name: str, parse: Callable[[str | None], Any] = lambda text: text
) -> FieldSource:
    """A field of a hash, as *parse* reads its text."""
    return FieldSource(lambda replies: parse(replies.hash_field(key, name)), ((key, name),))


def hash_counts(key: str, prefix: str, outcomes: Iterable[str]) -> FieldSource:
    """The counts in the fields `prefix:outcome` of a hash, by outcome."""
    names = {outcome: f"{prefix}:{outcome}" for outcome in outcomes}
    return FieldSource(
        lambda replies: {
            outcome: read_int(replies.hash_field(key, name)) or 0 for outcome, name in names.items()
        },
        tuple((key, name) for name in names.values()),
    )


def answer(
    key: str,
    ask: Callable[[Client, str, AgentReplies], Any],
    parse: Callable[[Any], Any] = lambda reply: reply,
) -> FieldSource:
    """The reply to a command about a key, as *parse* reads it."""
    question = AgentQuestion(key, ask)
    return FieldSource(lambda replies: parse(replies.reply(question)), questions=(question,))


def seconds(ms: str | None) -> float | None:
    """A stored time in milliseconds as seconds; None for an invalid one."""
    number = read_int(ms)
    return None if number is None else number / 1000


# The iteration in flight

#: The members that are due first.
DUE = AgentQuestion("due", lambda pipe, key, _: pipe.zrange(key, 0, _STEPS - 1, withscores=True))
_FLIGHT = (("iteration", "phase"), ("iteration", "phaseAt"))


def _flight(replies: AgentReplies) -> InFlightIteration | None:
    """The iteration in flight, from its phase and the phase's start; None without one."""
    phase, began = replies.hash_field(*_FLIGHT[0]), seconds(replies.hash_field(*_FLIGHT[1]))
    if not phase or began is None:
        return None
    due = replies.reply(DUE)
    deadline = dict(due).get("phase")
    # A full list may have cut it off.
    is_listed = deadline is not None or len(due) >= _STEPS
    return InFlightIteration(began, is_listed, deadline / 1000 if deadline is not None else None)


FLIGHT = FieldSource(_flight, _FLIGHT, (DUE,))


# The last iteration that ended

_LAST = AgentQuestion("history", lambda pipe, key, _: pipe.zrevrange(key, 0, 0, withscores=True))


def _ask_past(replies: AgentReplies) -> dict[Hashable, Command]:
    members = replies.reply(_LAST)
    if not members:
        return {}
    key = Keys(replies.entry.id).past_iteration(int(members[0][0]))
    return {"past": hash_fields(key, "success", "startedAt")}


def _last(replies: AgentReplies) -> LastIteration | None:
    members = replies.reply(_LAST)
    if not members:
        return None
    (number, end), (success, _) = members[0], replies.detail("past")
    return LastIteration(int(number), end / 1000, success == "1" if success else None)


def _observation_time(replies: AgentReplies) -> float | None:
    _, began = replies.detail("past") or (None, None)
    return seconds(replies.hash_field("iteration", "startedAt") or began)


LAST = FieldSource(_last, questions=(_LAST,), details=_ask_past)
OBSERVED = FieldSource(_observation_time, (("iteration", "startedAt"),), (_LAST,), _ask_past)


# Steps that no worker has taken


def _ask_due(replies: AgentReplies) -> dict[Hashable, Command]:
    keys = Keys(replies.entry.id)
    commands: dict[Hashable, Command] = {}
    for member, _ in replies.reply(DUE):
        kind = naming.parts(member)[0]
        if kind == "batch":
            names = (f"{member}:by", f"{member}:sentAt", member)
            commands[member] = hash_fields(keys.iteration, *names)
        elif kind in _JOBS:
            commands[member] = hash_fields(keys.job(member), *_JOB)
    return commands


def _waiting(replies: AgentReplies) -> tuple[WaitingWork, ...]:
    steps = [_waiting_phase(replies)]
    for member, _ in replies.reply(DUE):
        texts = replies.detail(member)
        if texts is not None:
            kind = _JOBS.get(naming.parts(member)[0])
            steps.append(_waiting_job(kind, *texts) if kind else _waiting_batch(*texts))
    return tuple(step for step in steps if step is not None)


def _waiting_phase(replies: AgentReplies) -> WaitingWork | None:
    phase, entered, sent, queue = (replies.hash_field(*name) for name in _SENT)
    since = seconds(sent)
    if not phase or phase == "observe" or entered or since is None:
        return None
    return WaitingWork(phase, queue or (queues.ACT if phase == "act" else queues.LOOP), since)


def _waiting_batch(by: str | None, sent: str | None, payload: str | None) -> WaitingWork | None:
    since = seconds(sent)
    if by or since is None or payload is None:
        return None
    return WaitingWork("observe", json.loads(payload)["queue"], since)


def _waiting_job(
    kind: str, state: str | None, queued: str | None, queue: str | None
) -> WaitingWork | None:
    since = seconds(queued)
    if state != "queued" or since is None:
        return None
    return WaitingWork(kind, queue or queues.ACT, since)


_SENT = tuple(("iteration", name) for name in ("phase", "entered", "sentAt", "queue"))
WAITING = FieldSource(_waiting, _SENT, (DUE,), _ask_due)


# The oldest pending run


def _first_run(level: int) -> AgentQuestion:
    least, most = level * _URGENCY, (level + 1) * _URGENCY
    return AgentQuestion(
        "runs_pending",
        lambda pipe, key, _: pipe.zrangebyscore(key, least, f"({most:.0f}", start=0, num=1),
    )


_FIRST_RUNS = tuple(_first_run(level) for level in range(len(LEVELS)))


def _run_ids(replies: AgentReplies) -> Iterator[str]:
    for question in _FIRST_RUNS:
        yield from replies.reply(question)


def _ask_runs(replies: AgentReplies) -> dict[Hashable, Command]:
    keys = Keys(replies.entry.id)
    return {("run", id): hash_fields(keys.run(id), "createdAt") for id in _run_ids(replies)}


def _oldest_run(replies: AgentReplies) -> float | None:
    times = [seconds(replies.detail(("run", id))[0]) for id in _run_ids(replies)]
    return min((at for at in times if at is not None), default=None)


OLDEST_RUN = FieldSource(_oldest_run, questions=_FIRST_RUNS, details=_ask_runs)


# Observers


def _ask_observers(replies: AgentReplies) -> dict[Hashable, Command]:
    observers = replies.entry.catalog.observers
    key = Keys(replies.entry.id).observers_health
    return {"observers": hash_fields(key, *observers)} if observers else {}


def _observers(replies: AgentReplies) -> dict[str, ObserverHealth]:
    texts = zip(replies.entry.catalog.observers, replies.detail("observers") or (), strict=True)
    healths = {
        name: readable(f"the health of observer {name}", ObserverHealth.from_json, text)
        for name, text in texts
        if text
    }
    return {name: health for name, health in healths.items() if health is not None}


OBSERVERS = FieldSource(_observers, details=_ask_observers)


# Held actions

_HELD = AgentQuestion(
    "held_actions", lambda pipe, key, _: pipe.zrange(key, 0, _HOLDS - 1, desc=True)
)


def _ask_holds(replies: AgentReplies) -> dict[Hashable, Command]:
    keys = Keys(replies.entry.id)
    return {
        ("hold", place): partial(_read_hash, keys.of("hold", place))
        for place in replies.reply(_HELD)
    }


def _read_hash(key: str, pipe: Client) -> None:
    pipe.hgetall(key)


def _holds(replies: AgentReplies) -> tuple[Hold, ...]:
    holds = [
        readable(f"hold {place}", read_hold, replies.detail(("hold", place)) or {})
        for place in replies.reply(_HELD)
    ]
    return tuple(hold for hold in holds if hold is not None)


HOLDS = FieldSource(_holds, questions=(_HELD,), details=_ask_holds)


# The approval that is answered first

#: The pending approval with the earliest deadline, and that deadline.
NEXT_APPROVAL = AgentQuestion(
    "approvals_pending", lambda pipe, key, _: pipe.zrange(key, 0, 0, withscores=True)
)


def _ask_approval(replies: AgentReplies) -> dict[Hashable, Command]:
    keys = Keys(replies.entry.id)
    return {
        ("approval", id): hash_fields(keys.approval(id), "title", "actionId", "target")
        for id, _ in replies.reply(NEXT_APPROVAL)
    }


def _approval(replies: AgentReplies) -> WaitingApproval | None:
    members = replies.reply(NEXT_APPROVAL)
    if not members:
        return None
    id = members[0][0]
    title, action, target = replies.detail(("approval", id))
    return WaitingApproval(id, title or action or id, target or "")


APPROVAL = FieldSource(_approval, questions=(NEXT_APPROVAL,), details=_ask_approval)


# The procedure that has been stopped for the longest time

_FIRST_STOPPED = AgentQuestion(
    "procedures_stopped", lambda pipe, key, _: pipe.zrange(key, 0, 0, withscores=True)
)


def _ask_stopped(replies: AgentReplies) -> dict[Hashable, Command]:
    keys = Keys(replies.entry.id)
    return {
        ("procedure", id): hash_fields(keys.job(naming.procedure(id)), "action", "target", "reason")
        for id, _ in replies.reply(_FIRST_STOPPED)
    }


def _first_stop(replies: AgentReplies) -> StoppedProcedure | None:
    for id, at in replies.reply(_FIRST_STOPPED):
        action, target, reason = replies.detail(("procedure", id))
        return StoppedProcedure(id, action or id, target or "", reason or "", at / 1000)
    return None


STOPPED = FieldSource(_first_stop, questions=(_FIRST_STOPPED,), details=_ask_stopped)
