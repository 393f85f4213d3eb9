"""Reads the health of a deployment in a few round trips, however much history there is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, get_args

import redis
from pydantic import ValidationError

from boyd import naming
from boyd.errors import StoreError, UnreadableRecord
from boyd.models import LEVELS, EffectName, ObserverHealth, from_ms
from boyd.models.archived import ArchiveStatus, TraceStatus
from boyd.store.approvals import NO_DEADLINE
from boyd.store.archive_status import parse_status
from boyd.store.audit_trail import COUNTED
from boyd.store.fleet import AgentEntry, WorkerInfo
from boyd.store.freezes import first_reason, reason_in, revocation_of, scopes_of
from boyd.store.health_snapshot import (
    AgentHealth,
    EndedTotals,
    HealthSnapshot,
    InFlightIteration,
    Roster,
    ServerHealth,
    WaitingWork,
)
from boyd.store.keys import (
    AGENTS,
    ARCHIVE,
    DEPLOYMENT,
    FREEZES,
    TRACES,
    WORKER_INFO,
    WORKERS,
    Keys,
)
from boyd.store.master_health import read_cluster
from boyd.store.model_usage import read_totals
from boyd.store.server.connection import (
    Client,
    has_wrong_type,
    replies_of_some,
    stored_int,
    translated,
)
from boyd.store.unreadable import readable
from boyd.text import queues

#: Due members to read per agent, earliest first.
_STEPS = 50
#: The score that each level of urgency adds to a pending run in `submit_run`.
_URGENCY = 1e13
#: Queues that every agent has.
_SHARED = (queues.LOOP, queues.OBSERVE, queues.ACT, queues.CALLBACK, queues.THINK)

_T = TypeVar("_T")
_Q = TypeVar("_Q", bound=Hashable)
_Question = Callable[[Client], Any]


def read_roster(client: Client) -> Roster:
    """Read the agents and processes, in two round trips.

    Raises:
        StoreUnavailable: Redis did not answer.
        StoreError: Redis answered with an error.
    """
    roster = _roster(_ask(client, _ROSTER))
    questions: dict[tuple[str, str], _Question] = {}
    for agent in roster.agents:
        keys = Keys(agent)
        questions[agent, "swept"] = _get(keys.loop, "sweptAt")
        questions[agent, "flight"] = _get_many(keys.iteration, "phase", "phaseAt")
        questions[agent, "due"] = _due(keys)
    answers, away = _ask_agents(client, questions)
    reached = [agent for agent in roster.agents if agent not in away]
    swept: dict[str, float | None] = {}
    flights: dict[str, InFlightIteration | None] = {}
    for agent in reached:
        with suppress(TypeError):  # a key of another type, which the whole health names
            swept[agent] = _seconds(answers[agent, "swept"])
            flights[agent] = _flight(answers[agent, "flight"], answers[agent, "due"])
    return replace(
        roster,
        swept={name: at for name, at in swept.items() if at is not None},
        flights={agent: flight for agent, flight in flights.items() if flight is not None},
    )


def read_health(
    client: Client,
    brokers: Sequence[Client] = (),
    queues_of: Mapping[str, Collection[str]] | None = None,
) -> HealthSnapshot:
    """Read the health of the deployment, in four round trips.

    Args:
        client: the Redis that holds the state.
        brokers: the servers that carry messages, in order; empty: *client*.
        queues_of: further queues to measure, by agent.

    Raises:
        StoreUnavailable: Redis did not answer; errors of brokers are part of the result.
        StoreError: Redis answered with an error.
    """
    began, clock = time.monotonic(), time.time()
    first = _ask(client, _ROSTER | _SERVER, optional=_SERVER)
    latency = time.monotonic() - began
    roster = _roster(first)
    looks = [_Look(entry) for entry in roster.agents.values()]
    answers, away = _ask_agents(client, _merged(look.questions(roster.now) for look in looks))
    looks = [look for look in looks if look.agent_id not in away]
    asked = {look: look.readable(lambda it: it.details(answers)) for look in looks}
    details, lost = _ask_agents(
        client, _merged(more for more in asked.values() if more is not None)
    )
    looks = [look for look, more in asked.items() if more is not None and look.agent_id not in lost]
    freezes = first["freezes"]
    judged = [look.readable(lambda it: it.health(answers, details, freezes)) for look in looks]
    agents = [health for health in judged if health is not None]
    messages, broker_error = _messages(brokers or [client], roster, agents, queues_of or {})
    info, masters = first["info"], read_cluster(client)
    server = ServerHealth.of(info, first["rules"]) if info is not None else None
    servers = [master.server for master in masters if master.server is not None]
    return HealthSnapshot(
        roster=_completed(roster, agents, away | lost),
        server=max(servers, key=lambda one: one.fullness, default=server),
        skew=roster.now - (clock + latency / 2),
        latency=latency,
        frozen=reason_in(first["freezes"].get(DEPLOYMENT)),
        agents=agents,
        messages=messages,
        broker_error=broker_error,
        archive=parse_status(ArchiveStatus, first["archive"]),
        traces=parse_status(TraceStatus, first["traces"]),
        cluster=masters,
        unreached=sorted(away | lost),
    )


# Questions


def _get(key: str, name: str) -> _Question:
    return lambda pipe: pipe.hget(key, name)


def _get_many(key: str, *names: str) -> _Question:
    return lambda pipe: pipe.hmget(key, names)


_ROSTER: dict[str, _Question] = {
    "time": lambda pipe: pipe.time(),
    "beats": lambda pipe: pipe.zrange(WORKERS, 0, -1, withscores=True),
    "infos": lambda pipe: pipe.hgetall(WORKER_INFO),
    "agents": lambda pipe: pipe.hgetall(AGENTS),
    "freezes": lambda pipe: pipe.hgetall(FREEZES),
}
#: Questions about processes, and their keys: a foreign type of those hides no agent.
_PROCESSES = {"beats": WORKERS, "infos": WORKER_INFO}
#: Access rules may forbid these.
_SERVER: dict[str, _Question] = {
    "info": lambda pipe: pipe.info(),
    "rules": lambda pipe: pipe.config_get("save"),
    "archive": lambda pipe: pipe.get(ARCHIVE),
    "traces": lambda pipe: pipe.get(TRACES),
}


def _ask(
    client: Client, questions: Mapping[_Q, _Question], optional: Collection[Any] = ()
) -> dict[_Q, Any]:
    """The answers to all questions in one round trip; None for *optional* ones refused."""
    if not questions:
        return {}
    with translated():
        pipe = client.pipeline(transaction=False)
        for question in questions.values():
            question(pipe)
        answers = dict(zip(questions, pipe.execute(raise_on_error=False), strict=True))
        for name, answer in answers.items():
            if has_wrong_type(answer) and name in _PROCESSES:
                continue
            if isinstance(answer, redis.RedisError) and name not in optional:
                raise answer
    return {q: None if isinstance(a, redis.RedisError) else a for q, a in answers.items()}


def _ask_agents(
    client: Client, questions: Mapping[tuple[str, str], _Question]
) -> tuple[dict[tuple[str, str], Any], set[str]]:
    """The answers to questions about agents, and the agents whose server does not answer.

    An error stands for the answer about a key of another type.
    """
    if not questions:
        return {}, set()
    with translated():
        pipe = client.pipeline(transaction=False)
        for question in questions.values():
            question(pipe)
        answers = dict(zip(questions, replies_of_some(pipe), strict=True))
        away: set[str] = set()
        for (agent, _), answer in answers.items():
            if isinstance(answer, redis.ConnectionError | redis.TimeoutError):
                away.add(agent)
            elif isinstance(answer, redis.RedisError) and not has_wrong_type(answer):
                raise answer
    return answers, away


def _merged(parts: Iterable[Mapping[_Q, _Question]]) -> dict[_Q, _Question]:
    return {question: ask for part in parts for question, ask in part.items()}


def _due(keys: Keys) -> _Question:
    """The question for the members that are due first."""
    return lambda pipe: pipe.zrange(keys.due, 0, _STEPS - 1, withscores=True)


def _flight(
    record: Sequence[str | None], due: Sequence[tuple[str, float]]
) -> InFlightIteration | None:
    """The iteration in flight, from its phase and the phase's start; None without one."""
    phase, since = record
    began = _seconds(since)
    if not phase or began is None:
        return None
    deadline = dict(due).get("phase")
    # A full list may have cut it off.
    listed = deadline is not None or len(due) >= _STEPS
    return InFlightIteration(began, listed, deadline / 1000 if deadline is not None else None)


# Agents and processes


def _roster(answers: Mapping[str, Any]) -> Roster:
    seconds, micros = answers["time"]
    agents: dict[str, AgentEntry] = {}
    processes: list[WorkerInfo] = []
    unreadable: list[str] = []
    for name, text in sorted(answers["agents"].items()):
        try:
            agents[name] = AgentEntry.from_json(text)
        except ValidationError:
            unreadable.append(f"agent {name}")
    infos = answers["infos"] or {}
    unreadable += [key for name, key in _PROCESSES.items() if answers[name] is None]
    for name, beat in answers["beats"] or []:
        try:
            processes.append(_process(infos.get(name, ""), beat))
        except ValidationError:
            unreadable.append(name)
    return Roster(seconds + micros / 1e6, agents, processes, unreadable)


def _completed(roster: Roster, agents: Sequence[AgentHealth], away: Collection[str]) -> Roster:
    """The roster with the last sweeps, and with the agents whose values cannot be read."""
    swept = {agent.entry.id: agent.swept_at for agent in agents if agent.swept_at is not None}
    broken = sorted(roster.agents.keys() - {agent.entry.id for agent in agents} - set(away))
    unreadable = [*roster.unreadable, *(f"agent {name}" for name in broken)]
    return replace(roster, swept=swept, unreadable=unreadable)


def _process(text: str, beat: float) -> WorkerInfo:
    return WorkerInfo.from_json(text).patched({"last_beat": from_ms(beat)})


# One agent


class _Look:
    """The questions about one agent, in two rounds."""

    def __init__(self, entry: AgentEntry) -> None:
        self.agent_id = entry.id
        self._entry = entry
        self._keys = Keys(entry.id)

    def readable(self, read: Callable[[_Look], _T]) -> _T | None:
        """The agent as *read* makes it; None, with a note, when its values cannot be read."""
        return readable(f"the state of agent {self.agent_id}", read, self)

    def questions(self, now: float) -> dict[tuple[str, str], _Question]:
        """The questions of the first round."""
        keys = self._keys
        asked: dict[str, _Question] = {
            "loop": _get_many(keys.loop, *_LOOP),
            "flight": _get_many(keys.iteration, *_FLIGHT),
            "due": _due(keys),
            "intake": lambda pipe: pipe.llen(keys.intake),
            "runs": lambda pipe: pipe.zcard(keys.runs_pending),
            "approvals": lambda pipe: pipe.zcard(keys.approvals_pending),
            "next": lambda pipe: pipe.zrange(keys.approvals_pending, 0, 0, withscores=True),
            "expired": lambda pipe: pipe.zcount(keys.approvals_pending, "-inf", now * 1000),
            "last": lambda pipe: pipe.zrevrange(keys.history, 0, 0, withscores=True),
            "event": lambda pipe: pipe.xrevrange(keys.events, count=1),
            "suspended": lambda pipe: pipe.zcount(keys.held_actions, "+inf", "+inf"),
            "usage": lambda pipe: pipe.hgetall(keys.usage),
            "audit": _get_many(keys.audit_head, *_AUDITED),
        }
        if self._entry.catalog.observers:
            asked["health"] = _get_many(keys.observers_health, *self._entry.catalog.observers)
        for level in range(len(LEVELS)):
            asked[f"first run {level}"] = self._first_run(level)
        return self._named(asked)

    def details(self, answers: Mapping[tuple[str, str], Any]) -> dict[tuple[str, str], _Question]:
        """The questions that follow from the first round's answers."""
        keys = self._keys
        asked: dict[str, _Question] = {}
        for number, _ in self._of(answers, "last"):
            asked["past"] = _get_many(keys.archived(int(number)), "success", "startedAt")
        for level in range(len(LEVELS)):
            for run_id in self._of(answers, f"first run {level}"):
                asked[f"run {level}"] = _get(keys.run(run_id), "createdAt")
        for member, _ in self._of(answers, "due"):
            kind = naming.parts(member)[0]
            if kind == "batch":
                names = [f"{member}:by", f"{member}:sentAt", member]
                asked[member] = _get_many(keys.iteration, *names)
            elif kind in _JOBS:
                asked[member] = _get_many(keys.job(member), *_JOB)
        return self._named(asked)

    def health(
        self,
        answers: Mapping[tuple[str, str], Any],
        details: Mapping[tuple[str, str], Any],
        freezes: Mapping[str, str],
    ) -> AgentHealth:
        """The agent's health from the answers of both rounds."""
        loop = dict(zip(_LOOP, self._of(answers, "loop"), strict=True))
        flight = dict(zip(_FLIGHT, self._of(answers, "flight"), strict=True))
        due = self._of(answers, "due")
        approvals = [score for _, score in self._of(answers, "next") if score < NO_DEADLINE]
        entered = flight["entered"]
        return AgentHealth(
            entry=self._entry,
            iterations=stored_int(loop["iteration"]) or 0,
            phase=flight["phase"] or "idle",
            phase_since=_seconds(flight["phaseAt"]),
            flight=_flight((flight["phase"], flight["phaseAt"]), due),
            flight_since=_seconds(flight["startedAt"]),
            observed=_seconds(flight["startedAt"] or self._past(details)[1]),
            events_lost=_seconds(loop["eventsLostAt"]),
            events_error=loop["eventsLostWhy"] or "",
            format=max(stored_int(one["formatVersion"]) or 1 for one in (loop, flight)),
            worker=entered.partition("/")[0] if entered else None,
            deadline=due[0][1] / 1000 if due else None,
            waiting=tuple(self._waiting(flight, due, details)),
            intake=self._of(answers, "intake"),
            runs=self._of(answers, "runs"),
            oldest_run=self._oldest_run(details),
            approvals=self._of(answers, "approvals"),
            expired=self._of(answers, "expired"),
            next_deadline=approvals[0] / 1000 if approvals else None,
            last=self._last(answers, details),
            slot=_seconds(loop["slot"]),
            scheduled=_seconds(loop["scheduled"]),
            swept_at=_seconds(loop["sweptAt"]),
            resumed_at=_resumed(self._of(answers, "event")),
            paused=loop["paused"],
            frozen=first_reason([freezes.get(scope) for scope in scopes_of(self._entry.id)]),
            revoked=reason_in(freezes.get(revocation_of(self._entry.id))),
            observers=self._health(answers),
            model=read_totals(self._of(answers, "usage")),
            ended=_counts(loop, _ENDED),
            notified=_counts(loop, _NOTIFIED),
            procedures=_counts(loop, _PROCEDURES),
            verdicts=_counts(loop, _VERDICTS),
            autonomy=_counts(loop, _AUTONOMY),
            audited=_counts(dict(zip(_AUDITED, self._of(answers, "audit"), strict=True)), _AUDITED),
            suspended=self._of(answers, "suspended"),
        )

    def _waiting(
        self,
        flight: Mapping[str, str | None],
        due: list[tuple[str, float]],
        details: Mapping[tuple[str, str], Any],
    ) -> Iterator[WaitingWork]:
        phase, sent = flight["phase"], _seconds(flight["sentAt"])
        if phase and phase != "observe" and not flight["entered"] and sent is not None:
            usual = queues.ACT if phase == "act" else queues.LOOP
            yield WaitingWork(phase, flight["queue"] or usual, sent)
        for member, _ in due:
            found = self._of(details, member)
            if found is None:
                continue
            what = _JOBS.get(naming.parts(member)[0])
            step = _job(what, *found) if what else _batch(*found)
            if step is not None:
                yield step

    def _oldest_run(self, details: Mapping[tuple[str, str], Any]) -> float | None:
        found = [_seconds(self._of(details, f"run {level}")) for level in range(len(LEVELS))]
        return min((at for at in found if at is not None), default=None)

    def _last(
        self, answers: Mapping[tuple[str, str], Any], details: Mapping[tuple[str, str], Any]
    ) -> EndedTotals | None:
        for number, ended in self._of(answers, "last"):
            success = self._past(details)[0]
            return EndedTotals(int(number), ended / 1000, success == "1" if success else None)
        return None

    def _past(self, details: Mapping[tuple[str, str], Any]) -> tuple[str | None, str | None]:
        """The success and start of the last iteration that ended."""
        success, began = self._of(details, "past") or (None, None)
        return success, began

    def _health(self, answers: Mapping[tuple[str, str], Any]) -> dict[str, ObserverHealth]:
        texts = self._of(answers, "health") or ()
        found = zip(self._entry.catalog.observers, texts, strict=False)
        read = {
            name: readable(f"the health of observer {name}", ObserverHealth.from_json, text)
            for name, text in found
            if text
        }
        return {name: health for name, health in read.items() if health is not None}

    def _first_run(self, level: int) -> _Question:
        least, most = level * _URGENCY, (level + 1) * _URGENCY
        key = self._keys.runs_pending
        return lambda pipe: pipe.zrangebyscore(key, least, f"({most:.0f}", start=0, num=1)

    def _named(self, asked: Mapping[str, _Question]) -> dict[tuple[str, str], _Question]:
        return {(self._entry.id, name): question for name, question in asked.items()}

    def _of(self, answers: Mapping[tuple[str, str], Any], name: str) -> Any:
        answer = answers.get((self._entry.id, name))
        if isinstance(answer, redis.RedisError):
            raise UnreadableRecord(f"{name}: {answer}")
        return answer


#: The version of the format of a hash.
_FORMAT = ("formatVersion",)
#: The numbers of iterations that ended in each way.
_ENDED = ("ended:completed", "ended:failed")
#: The numbers of audit entries of the kinds that are counted.
_AUDITED = tuple(f"of:{kind}" for kind in COUNTED)
#: The numbers of notifications that ended in each way.
_NOTIFIED = ("notified:succeeded", "notified:failed", "notified:skipped")
#: The numbers of verdicts on the effects of executions.
_VERDICTS = tuple(f"verdict:{name}" for name in get_args(EffectName))
#: The numbers of grants to run alone that were given and taken away.
_AUTONOMY = ("autonomy:granted", "autonomy:withdrawn", "autonomy:revoked")
#: The numbers of procedures that were stopped, went back, or ended in each way.
_PROCEDURES = tuple(
    f"procedure:{name}" for name in ("stopped", "compensating", "succeeded", "failed", "cancelled")
)
_LOOP = (
    "iteration",
    "slot",
    "scheduled",
    "sweptAt",
    "paused",
    "eventsLostAt",
    "eventsLostWhy",
    *_ENDED,
    *_NOTIFIED,
    *_VERDICTS,
    *_AUTONOMY,
    *_PROCEDURES,
    *_FORMAT,
)
_FLIGHT = ("phase", "startedAt", "phaseAt", "entered", "sentAt", "queue", *_FORMAT)
_JOB = ("executionState", "queuedAt", "queue")
#: Descriptions of the jobs that somebody waits for, by the beginning of their names.
_JOBS = {
    "approval": "an approved action",
    "call": "a call",
    "delivery": "a notification",
    "verify": "a verification",
    "procedure": "a procedure",
}


def _batch(by: str | None, sent: str | None, payload: str | None) -> WaitingWork | None:
    since = _seconds(sent)
    if by or since is None or payload is None:
        return None
    return WaitingWork("observe", json.loads(payload)["queue"], since)


def _job(what: str, state: str | None, queued: str | None, queue: str | None) -> WaitingWork | None:
    since = _seconds(queued)
    if state != "queued" or since is None:
        return None
    return WaitingWork(what, queue or queues.ACT, since)


def _resumed(events: list[tuple[str, dict[str, str]]]) -> float | None:
    """The time when the agent was resumed, if that is its latest event."""
    for name, fields in events:
        if fields.get("kind") == "agent.resumed":
            return _seconds(name.partition("-")[0])
    return None


# The brokers


def _messages(
    brokers: Sequence[Client],
    roster: Roster,
    agents: Iterable[AgentHealth],
    more: Mapping[str, Collection[str]],
) -> tuple[dict[tuple[str, str], int] | None, str | None]:
    """The length of each queue whose broker answers, and the errors of those that do not."""
    known: list[dict[tuple[str, str], _Question]] = [{} for _ in brokers]
    for agent in agents:
        name = agent.entry.id
        running = [process for process in roster.processes if name in process.agents]
        found = {queue for process in running for queue in process.queues}
        found |= {*_SHARED, *agent.named_queues, *agent.oldest, *more.get(name, ())}
        own = known[queues.broker_of(name, len(brokers))]
        own |= {(name, queue): _length(queue, name) for queue in sorted(found)}
    lengths: dict[tuple[str, str], int] = {}
    errors: list[str] = []
    for position, (broker, questions) in enumerate(zip(brokers, known, strict=True), 1):
        try:
            if not questions:
                _ask(broker, {"answers": lambda pipe: pipe.ping()})
            lengths |= _ask(broker, questions)
        except StoreError as error:
            errors.append(f"broker {position}: {error}" if len(brokers) > 1 else str(error))
    return (None if len(errors) == len(brokers) else lengths), "; ".join(errors) or None


def _length(queue: str, agent_id: str) -> _Question:
    return lambda pipe: pipe.llen(queues.full_name(queue, agent_id))


# Texts


def _counts(found: Mapping[str, str | None], names: Iterable[str]) -> dict[str, int]:
    """The counts of those fields, by the part of the name after the colon."""
    return {name.partition(":")[2]: stored_int(found[name]) or 0 for name in names}


def _seconds(ms: str | None) -> float | None:
    number = stored_int(ms)
    return None if number is None else number / 1000
