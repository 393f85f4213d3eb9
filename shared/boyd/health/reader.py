"""Reads the health of a deployment in a few round trips, however much history there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

import redis
from pydantic import ValidationError

from boyd.errors import StoreError
from boyd.health.agent_health import SOURCES, AgentHealth
from boyd.health.agent_replies import (
    FLIGHT,
    AgentReplies,
    Command,
    FieldSource,
    first_round,
    hash_field,
    seconds,
)
from boyd.health.declaration import build
from boyd.health.server_health import ServerHealth, read_cluster
from boyd.health.snapshot import HealthSnapshot, Roster
from boyd.models import from_ms
from boyd.models.loop import ArchiveStatus, TraceStatus
from boyd.settings.process_settings import Settings
from boyd.store.ended_work import parse_status
from boyd.store.fleet import AgentEntry, WorkerInfo
from boyd.store.freezes import reason_in
from boyd.store.hashes import note_unreadable, readable
from boyd.store.keys import (
    AGENTS,
    ARCHIVE,
    DEPLOYMENT,
    FREEZES,
    TRACES,
    WORKER_INFO,
    WORKERS,
)
from boyd.store.server.connection import (
    Client,
    connect,
    foreign_key,
    has_wrong_type,
    replies_of_some,
    translate_errors,
)
from boyd.text import queues

#: Queues that every agent has.
_SHARED = (queues.LOOP, queues.OBSERVE, queues.ACT, queues.CALLBACK, queues.THINK)
_SWEPT = hash_field("loop", "sweptAt", seconds)

_T = TypeVar("_T")
_Q = TypeVar("_Q", bound=Hashable)
_Commands = Mapping[_Q, Command]


def read_roster(client: Client) -> Roster:
    """Read the agents and processes, in two round trips.

    Raises:
        StoreUnavailable: Redis did not answer.
        ForeignKey: the agents cannot be read.
        StoreError: Redis answered with an error.
    """
    first = _ask(client, _ROSTER)
    if has_wrong_type(first["agents"]):
        raise foreign_key(AGENTS)
    roster = _roster(first)
    agents = _Agents(roster, {})
    agents.ask(client, (_SWEPT, FLIGHT))
    return replace(roster, swept=agents.read(_SWEPT), flights=agents.read(FLIGHT))


def read_agents(client: Client, agent_id: str | None = None) -> tuple[Roster, list[AgentHealth]]:
    """Read the processes, and all agents or one with their health, in three round trips.

    Agents that cannot be read, or whose server is away, are noted and left out. Raises as
    `read_roster` does.
    """
    first = _ask(client, _ROSTER)
    if has_wrong_type(first["agents"]):
        raise foreign_key(AGENTS)
    roster, freezes = _roster(first), _freezes(first)
    if agent_id is not None:
        agents = {name: it for name, it in roster.agents.items() if name == agent_id}
        roster = replace(roster, agents=agents)
    readings = _read_agents(client, roster, freezes)
    for name in sorted(readings.away):
        note_unreadable(f"the state of agent {name}", "its Redis server does not answer")
    return roster, readings.healths()


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
    freezes = _freezes(first)
    readings = _read_agents(client, roster, freezes)
    agents = readings.healths()
    messages, broker_error = _messages(brokers or [client], roster, agents, queues_of or {})
    info, masters = _unless_refused(first["info"]), read_cluster(client)
    server = ServerHealth.of(info, _unless_refused(first["rules"])) if info is not None else None
    archive = parse_status(ArchiveStatus, _unless_refused(first["archive"]))
    traces = parse_status(TraceStatus, _unless_refused(first["traces"]))
    followers = {"archive": archive, "traces": traces}
    servers = [master.server for master in masters if master.server is not None]
    return HealthSnapshot(
        roster=_complete_roster(roster, agents, readings.away),
        server=max(servers, key=attrgetter("fullness"), default=server),
        skew=roster.now - (clock + latency / 2),
        latency=latency,
        frozen=reason_in(freezes.get(DEPLOYMENT)),
        agents=agents,
        messages=messages,
        broker_error=broker_error,
        archive=archive,
        traces=traces,
        unread=[name for name, status in followers.items() if status is None and first[name]],
        cluster=masters,
        unreached=sorted(readings.away),
    )


def _unless_refused(reply: Any) -> Any:
    return None if isinstance(reply, redis.RedisError) else reply


def _freezes(first: Mapping[str, Any]) -> Mapping[str, str]:
    return {} if has_wrong_type(first["freezes"]) else first["freezes"]


def _read_agents(client: Client, roster: Roster, freezes: Mapping[str, str]) -> _Agents:
    agents = _Agents(roster, freezes)
    agents.ask(client, SOURCES)
    agents.ask_details(client, SOURCES)
    return agents


def brokers_of(settings: Settings, timeout: float) -> list[Client]:
    """Clients for the brokers, in order; empty if there is none but the Redis with the state."""
    urls = settings.broker_urls
    if urls == [settings.redis_url]:
        return []
    return [connect(url, timeout=timeout, setting="broker_url") for url in urls]


# Questions


_ROSTER: dict[str, Command] = {
    "time": lambda pipe: pipe.time(),
    "beats": lambda pipe: pipe.zrange(WORKERS, 0, -1, withscores=True),
    "infos": lambda pipe: pipe.hgetall(WORKER_INFO),
    "agents": lambda pipe: pipe.hgetall(AGENTS),
    "freezes": lambda pipe: pipe.hgetall(FREEZES),
}
#: Questions about keys that another program may have overwritten, and those keys.
_KEYS = {"beats": WORKERS, "infos": WORKER_INFO, "agents": AGENTS, "freezes": FREEZES}
#: Access rules may forbid these.
_SERVER: dict[str, Command] = {
    "info": lambda pipe: pipe.info(),
    "rules": lambda pipe: pipe.config_get("save"),
    "archive": lambda pipe: pipe.get(ARCHIVE),
    "traces": lambda pipe: pipe.get(TRACES),
}


def _ask(client: Client, commands: _Commands[_Q], optional: Collection[Any] = ()) -> dict[_Q, Any]:
    """The replies to all commands in one round trip.

    An error stands for the reply to a refused *optional* one, and about one of `_KEYS` that holds
    another type.
    """
    if not commands:
        return {}
    with translate_errors():
        pipe = client.pipeline(transaction=False)
        for command in commands.values():
            command(pipe)
        replies = dict(zip(commands, pipe.execute(raise_on_error=False), strict=True))
        for name, reply in replies.items():
            is_foreign = name in _KEYS and has_wrong_type(reply)
            is_error = isinstance(reply, redis.RedisError) and not is_foreign
            if is_error and name not in optional:
                raise reply
    return replies


class _Agents:
    """The questions about all agents, each round of them in one round trip."""

    def __init__(self, roster: Roster, freezes: Mapping[str, str]) -> None:
        self._replies = [
            AgentReplies(entry, roster.now, freezes) for entry in roster.agents.values()
        ]
        #: The agents whose server does not answer.
        self.away: set[str] = set()

    def ask(self, client: Client, sources: Iterable[FieldSource]) -> None:
        """Ask the first round of questions; those whose server is away are dropped."""
        questions = first_round(sources)
        commands = {it.entry.id: it.commands(questions) for it in self._replies}
        for replies, answers in self._ask(client, commands):
            replies.take_first(answers)

    def ask_details(self, client: Client, sources: Iterable[FieldSource]) -> None:
        """Ask the second round, likewise; an agent whose replies cannot be read is dropped."""
        commands = {
            it.entry.id: details
            for it in self._replies
            if (details := _readable(it, lambda it: it.details(sources))) is not None
        }
        self._replies = [it for it in self._replies if it.entry.id in commands]
        for replies, answers in self._ask(client, commands):
            replies.take_second(answers)

    def read(self, source: FieldSource) -> dict[str, Any]:
        """The values of a field, by agent, as far as they are there and can be read."""
        values = {it.entry.id: _readable(it, source.read) for it in self._replies}
        return {name: value for name, value in values.items() if value is not None}

    def healths(self) -> list[AgentHealth]:
        """The health of each agent that can be read."""
        healths = [_readable(it, _health) for it in self._replies]
        return [health for health in healths if health is not None]

    def _ask(
        self, client: Client, commands: Mapping[str, Mapping[Hashable, Command]]
    ) -> list[tuple[AgentReplies, dict[Hashable, Any]]]:
        flat = {
            (name, question): command
            for name, questions in commands.items()
            for question, command in questions.items()
        }
        answers = _ask_agents(client, flat) if flat else {}
        unreachable = (redis.ConnectionError, redis.TimeoutError)
        self.away |= {name for (name, _), it in answers.items() if isinstance(it, unreachable)}
        self._replies = [it for it in self._replies if it.entry.id not in self.away]
        return [
            (it, {question: answers[it.entry.id, question] for question in commands[it.entry.id]})
            for it in self._replies
        ]


def _ask_agents(client: Client, commands: _Commands[_Q]) -> dict[_Q, Any]:
    """The replies, with an error in place of those of a server that is away or of a foreign key."""
    with translate_errors():
        pipe = client.pipeline(transaction=False)
        for command in commands.values():
            command(pipe)
        replies = dict(zip(commands, replies_of_some(pipe), strict=True))
        for reply in replies.values():
            is_away = isinstance(reply, redis.ConnectionError | redis.TimeoutError)
            if isinstance(reply, redis.RedisError) and not is_away and not has_wrong_type(reply):
                raise reply
    return replies


def _health(replies: AgentReplies) -> AgentHealth:
    return build(AgentHealth, lambda source: source.read(replies))


def _readable(replies: AgentReplies, read: Callable[[AgentReplies], _T]) -> _T | None:
    """The value that *read* finds in the replies; None, with a note, when they are unreadable."""
    return readable(f"the state of agent {replies.entry.id}", read, replies)


# Agents and processes


def _roster(replies: Mapping[str, Any]) -> Roster:
    whole, micros = replies["time"]
    foreign = [key for name, key in _KEYS.items() if has_wrong_type(replies.get(name))]
    listed = {name: {} if has_wrong_type(reply) else reply for name, reply in replies.items()}
    agents: dict[str, AgentEntry] = {}
    processes: list[WorkerInfo] = []
    unreadable: list[str] = []
    for name, text in sorted(listed["agents"].items()):
        try:
            agents[name] = AgentEntry.from_json(text)
        except ValidationError:
            unreadable.append(f"agent {name}")
    unreadable += [key for key in foreign if key in (WORKERS, WORKER_INFO)]
    for name, beat in listed["beats"]:
        try:
            processes.append(_process(listed["infos"].get(name, ""), beat))
        except ValidationError:
            unreadable.append(name)
    foreign = [key for key in foreign if key not in unreadable]
    return Roster(whole + micros / 1e6, agents, processes, unreadable, foreign=foreign)


def _complete_roster(
    roster: Roster, agents: Sequence[AgentHealth], away: Collection[str]
) -> Roster:
    """The roster with the last sweeps, and with the agents whose values cannot be read."""
    sweeps = {agent.entry.id: agent.beat.swept_at for agent in agents}
    broken = sorted(roster.agents.keys() - sweeps.keys() - set(away))
    return replace(
        roster,
        swept={name: at for name, at in sweeps.items() if at is not None},
        unreadable=[*roster.unreadable, *(f"agent {name}" for name in broken)],
    )


def _process(text: str, beat: float) -> WorkerInfo:
    return WorkerInfo.from_json(text).patched({"last_beat": from_ms(beat)})


# The brokers


def _messages(
    brokers: Sequence[Client],
    roster: Roster,
    agents: Iterable[AgentHealth],
    more: Mapping[str, Collection[str]],
) -> tuple[dict[tuple[str, str], int] | None, str | None]:
    """The length of each queue whose broker answers, and the errors of those that do not."""
    commands: list[dict[tuple[str, str], Command]] = [{} for _ in brokers]
    for agent in agents:
        name = agent.entry.id
        running = [process for process in roster.processes if name in process.agents]
        names = {queue for process in running for queue in process.queues}
        names |= {*_SHARED, *agent.parts_by_queue, *agent.oldest, *more.get(name, ())}
        own = commands[queues.broker_of(name, len(brokers))]
        own |= {(name, queue): _length(queue, name) for queue in sorted(names)}
    lengths: dict[tuple[str, str], int] = {}
    errors: list[str] = []
    for position, (broker, questions) in enumerate(zip(brokers, commands, strict=True), 1):
        try:
            if not questions:
                _ask(broker, {"answers": lambda pipe: pipe.ping()})
            lengths |= _ask(broker, questions)
        except StoreError as error:
            errors.append(f"broker {position}: {error}" if len(brokers) > 1 else str(error))
    return (None if len(errors) == len(brokers) else lengths), "; ".join(errors) or None


def _length(queue: str, agent_id: str) -> Command:
    return lambda pipe: pipe.llen(queues.full_name(queue, agent_id))
