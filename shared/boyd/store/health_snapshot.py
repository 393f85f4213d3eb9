"""How a deployment is doing: the shapes of what `boyd.store.health_reader` reads.

What is wrong with it is for `boyd.checks` to say. Times are seconds since the epoch on the Redis
server's clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from boyd.models import ActionInfo, EndpointInfo, ObserverHealth
from boyd.store.fleet import ALIVE, AgentEntry, Role, WorkerInfo
from boyd.store.server_release import Release

#: Seconds that nobody ran an agent after which it counts as retired.
RETIRED = 86_400.0
#: Seconds beyond its deadline, or without one, after which an iteration stands still.
STUCK = 10.0


@dataclass(frozen=True)
class InFlightIteration:
    """The iteration in flight, as a sweeper would find it.

    Attributes:
        since: when its phase began.
        looked_after: whether sweepers will come to it at all.
        deadline: by when it moves or is looked after, if that is known.
    """

    since: float
    looked_after: bool
    deadline: float | None

    def stands_still(self, now: float) -> bool:
        """Whether it has not moved for longer than any sweeper allows."""
        if not self.looked_after:
            return now - self.since > STUCK
        return self.deadline is not None and now - self.deadline > STUCK


@dataclass(frozen=True)
class ServerHealth:
    """What Redis says of itself.

    Attributes:
        release: as it names it.
        role: `master`, or what it replicates as.
        aof: whether it writes an append-only file; `aof_ok` whether the last write succeeded.
        rdb: its snapshot rules as (seconds, changes); None when it may not be asked.
        rdb_ok: whether the last snapshot succeeded.
        unsaved: changes since the last snapshot, which was at `saved_at`.
        used: bytes in use, of at most `limit`; 0: no limit.
        policy: what it does when it is full; None when it may not be asked.
    """

    release: Release
    role: str
    aof: bool
    aof_ok: bool
    rdb: tuple[tuple[int, int], ...] | None
    rdb_ok: bool
    unsaved: int
    saved_at: float
    used: int
    limit: int
    policy: str | None

    @classmethod
    def of(cls, info: Mapping[str, Any], rules: Mapping[str, str] | None) -> ServerHealth:
        """From the replies to INFO and CONFIG GET save."""
        return cls(
            release=Release.of(info),
            role=str(info.get("role", "master")),
            aof=info.get("aof_enabled") == 1,
            aof_ok=info.get("aof_last_write_status", "ok") == "ok",
            rdb=_rules(rules.get("save", "")) if rules is not None else None,
            rdb_ok=info.get("rdb_last_bgsave_status", "ok") == "ok",
            unsaved=int(info.get("rdb_changes_since_last_save", 0)),
            saved_at=float(info.get("rdb_last_save_time", 0)),
            used=int(info.get("used_memory", 0)),
            limit=int(info.get("maxmemory", 0)),
            policy=info.get("maxmemory_policy"),
        )


@dataclass(frozen=True)
class Roster:
    """Who is there.

    Attributes:
        now: the time on the Redis server's clock.
        agents: all agents that were ever announced, by id.
        processes: those that have beaten within the last hour, alive or not.
        unreadable: names of processes and agents whose announcement cannot be read.
        swept: when a process last looked after an agent, by id.
        flights: the iterations in flight, by agent.
    """

    now: float
    agents: dict[str, AgentEntry]
    processes: list[WorkerInfo]
    unreadable: list[str] = field(default_factory=list)
    swept: dict[str, float] = field(default_factory=dict)
    flights: dict[str, InFlightIteration] = field(default_factory=dict)

    def live(self, role: Role | None = None, agent_id: str | None = None) -> list[WorkerInfo]:
        """The processes that live: all, or those of a role or of an agent."""
        return [process for process in self._of(role, agent_id) if self.age(process) <= ALIVE]

    def silent(self) -> list[WorkerInfo]:
        """The processes that stopped without a goodbye, where no other has taken their place."""
        live = self.live()
        return [
            process
            for process in self.processes
            if self.age(process) > ALIVE and not any(_replaces(other, process) for other in live)
        ]

    def age(self, process: WorkerInfo) -> float:
        """Seconds since it last said that it lives."""
        assert process.last_beat is not None
        return self.now - process.last_beat.timestamp()

    def served(self, agent_id: str) -> set[str]:
        """The queues that live workers consume for an agent, by short name."""
        return {queue for worker in self.live("worker", agent_id) for queue in worker.queues}

    def retired(self, agent_id: str) -> bool:
        """Whether an agent was retired, or nobody has run it for so long that it counts as such."""
        entry = self.agents.get(agent_id)
        if entry is not None and entry.retired_at is not None:
            return True
        swept = self.swept.get(agent_id)
        return swept is not None and self.now - swept > RETIRED and not self.live(None, agent_id)

    def _of(self, role: Role | None, agent_id: str | None) -> Iterator[WorkerInfo]:
        for process in self.processes:
            if role in (None, process.role) and (agent_id is None or agent_id in process.agents):
                yield process


@dataclass(frozen=True)
class WaitingWork:
    """A step that waits for a worker to take it from *queue*."""

    what: str
    queue: str
    since: float


@dataclass(frozen=True)
class EndedTotals:
    """The last iteration that ended; `success` None: its record is not kept any more."""

    iteration: int
    at: float
    success: bool | None


@dataclass(frozen=True)
class ModelTotals:
    """What an agent's model was asked since the agent is there.

    Attributes:
        tokens: by model, and `input` or `output`.
        requests: by model and how they ended.
        ended: investigations by how they ended.
        spoken_at: when its server last passed a tool call on as text; None: never.
    """

    tokens: dict[tuple[str, str], int] = field(default_factory=dict)
    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    spoken_at: float | None = None


@dataclass(frozen=True)
class AgentHealth:
    """How one agent is doing.

    Attributes:
        entry: how its workers announce it.
        iterations: how many began.
        phase: what it is in, or `idle`; since `phase_since`, in the hands of `worker`.
        flight: the iteration in flight.
        flight_since: when it began.
        observed: when the last iteration began, which observes first.
        events_lost: when an event could not be written, if one could not; `events_error` says why.
        format: the newest format version of the agent's state and its iteration in flight.
        deadline: by when the first step has to move, or is sent again.
        waiting: steps that no worker has taken.
        intake: how many observations from outside wait.
        runs: how many are pending, the oldest since `oldest_run`.
        approvals: how many are pending; `expired` of them have passed their deadline.
        next_deadline: when the next of them expires.
        last: the last iteration that ended.
        slot: when the last tick's slot began.
        swept_at: when a process last looked after it.
        resumed_at: when it was resumed, if nothing has happened since.
        paused: why, if it is; the same for `frozen`.
        observers: how they have been doing.
        model: what its model was asked.
    """

    entry: AgentEntry
    iterations: int = 0
    phase: str = "idle"
    phase_since: float | None = None
    flight: InFlightIteration | None = None
    flight_since: float | None = None
    observed: float | None = None
    events_lost: float | None = None
    events_error: str = ""
    format: int = 1
    worker: str | None = None
    deadline: float | None = None
    waiting: tuple[WaitingWork, ...] = ()
    intake: int = 0
    runs: int = 0
    oldest_run: float | None = None
    approvals: int = 0
    expired: int = 0
    next_deadline: float | None = None
    last: EndedTotals | None = None
    slot: float | None = None
    swept_at: float | None = None
    resumed_at: float | None = None
    paused: str | None = None
    frozen: str | None = None
    observers: dict[str, ObserverHealth] = field(default_factory=dict)
    model: ModelTotals = field(default_factory=ModelTotals)

    @property
    def named_queues(self) -> dict[str, list[str]]:
        """The queues that its actions and endpoints name, with their ids."""
        found: dict[str, list[str]] = {}
        catalog = self.entry.catalog
        parts: list[ActionInfo | EndpointInfo] = [*catalog.actions, *catalog.endpoints]
        for part in parts:
            if part.queue:
                found.setdefault(part.queue, []).append(part.id)
        return found

    @property
    def oldest(self) -> dict[str, float]:
        """Since when the longest waiting step has been waiting, by queue."""
        found: dict[str, float] = {}
        for step in self.waiting:
            found[step.queue] = min(step.since, found.get(step.queue, step.since))
        return found


@dataclass(frozen=True)
class HealthSnapshot:
    """How a deployment is doing.

    Attributes:
        roster: who is there.
        server: what Redis says of itself; None when it may not be asked.
        skew: seconds by which its clock is ahead of ours.
        latency: seconds that its first answer took.
        frozen: why acting is frozen everywhere, if it is.
        agents: all agents.
        messages: how many lie in each queue, by agent and short name; None when the broker does
            not answer, and `broker_error` says why.
    """

    roster: Roster
    server: ServerHealth | None
    skew: float
    latency: float
    frozen: str | None
    agents: list[AgentHealth]
    messages: dict[tuple[str, str], int] | None
    broker_error: str | None = None


def _replaces(process: WorkerInfo, lost: WorkerInfo) -> bool:
    """Whether *process* has come up where *lost* was, for the same agents and queues."""
    same = process.role == lost.role and process.host == lost.host
    covers = set(process.agents) >= set(lost.agents) and set(process.queues) >= set(lost.queues)
    assert lost.last_beat is not None
    return same and covers and process.started_at > lost.started_at


def _rules(text: str) -> tuple[tuple[int, int], ...]:
    """The setting `save`: pairs of seconds and changes."""
    numbers = [int(number) for number in text.split()]
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))
