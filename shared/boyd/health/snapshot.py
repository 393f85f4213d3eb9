"""The health of a deployment, as `boyd.health.reader` reads and `boyd.health.checks` judges it.

Times are seconds since the epoch on the Redis server's clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from boyd.models import ActionInfo, EndpointInfo, ObserverHealth, from_ms
from boyd.models.archived import ArchiveStatus, FollowerStatus, TraceStatus
from boyd.models.investigation import ModelTotals
from boyd.store.fleet import ALIVE, AgentEntry, Role, WorkerInfo
from boyd.store.server.server_release import Release

#: Seconds without any process running it, after which an agent counts as retired.
RETIRED = 86_400.0
#: Seconds past its deadline, or without one, after which an iteration is stuck.
STUCK = 10.0


@dataclass(frozen=True)
class InFlightIteration:
    """The iteration in flight, as a sweeper finds it.

    Attributes:
        since: the start of its phase.
        looked_after: whether it is among the due members that sweepers check.
        deadline: the time when it becomes overdue, if known.
    """

    since: float
    looked_after: bool
    deadline: float | None

    def stands_still(self, now: float) -> bool:
        """Tell whether it has been stuck for longer than any sweeper allows."""
        if not self.looked_after:
            return now - self.since > STUCK
        return self.deadline is not None and now - self.deadline > STUCK


@dataclass(frozen=True)
class ServerHealth:
    """The state of the Redis server.

    Attributes:
        release: its product and version.
        role: `master` or its role as a replica.
        aof: whether it writes an append-only file; `aof_ok` whether the last write succeeded.
        rdb: its snapshot rules as (seconds, changes); None without permission to ask.
        rdb_ok: whether the last snapshot succeeded.
        unsaved: changes since the last snapshot, which was at `saved_at`.
        used: bytes in use, of at most `limit`; 0: no limit.
        policy: its eviction policy; None when unknown.
        clients: connected clients, of at most `most_clients`; 0: unknown.
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
    clients: int = 0
    most_clients: int = 0

    @classmethod
    def of(cls, info: Mapping[str, Any], rules: Mapping[str, str] | None) -> ServerHealth:
        """Read the replies to INFO and CONFIG GET save."""
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
            clients=int(info.get("connected_clients", 0)),
            most_clients=int(info.get("maxclients", 0)),
        )

    @property
    def fullness(self) -> float:
        """The part of its memory that is in use; without a limit, in terabytes."""
        return self.used / (self.limit or 1e12)


@dataclass(frozen=True)
class MasterHealth:
    """A master of a cluster.

    Attributes:
        name: its host and port.
        server: its state; None when it does not answer.
        replicas: the number of its connected replicas.
        unserved: the number of slots that nobody serves, as it knows.
        node_timeout: seconds of silence after which it calls another server down; None: unknown.
        full_coverage: whether it stops when a slot is not served.
    """

    name: str
    server: ServerHealth | None = None
    replicas: int = 0
    unserved: int = 0
    node_timeout: float | None = None
    full_coverage: bool = False


@dataclass(frozen=True)
class Roster:
    """The agents and processes of a deployment.

    Attributes:
        now: the Redis server's time.
        agents: all registered agents, by id.
        processes: the processes with a heartbeat in the last hour, alive or not.
        unreadable: names of processes and agents whose announcement cannot be read.
        swept: the time of the last sweep, by agent.
        flights: the iterations in flight, by agent.
    """

    now: float
    agents: dict[str, AgentEntry]
    processes: list[WorkerInfo]
    unreadable: list[str] = field(default_factory=list)
    swept: dict[str, float] = field(default_factory=dict)
    flights: dict[str, InFlightIteration] = field(default_factory=dict)

    def live(self, role: Role | None = None, agent_id: str | None = None) -> list[WorkerInfo]:
        """The live processes: all, or those of a role or an agent."""
        return [process for process in self._of(role, agent_id) if self.age(process) <= ALIVE]

    def silent(self) -> list[WorkerInfo]:
        """The processes that stopped without saying so and were not replaced."""
        live = self.live()
        return [
            process
            for process in self.processes
            if self.age(process) > ALIVE and not any(_replaces(other, process) for other in live)
        ]

    def age(self, process: WorkerInfo) -> float:
        """Seconds since the last heartbeat of *process*."""
        assert process.last_beat is not None
        return self.now - process.last_beat.timestamp()

    def served(self, agent_id: str) -> set[str]:
        """The queues that live workers consume for an agent, by short name."""
        return {queue for worker in self.live("worker", agent_id) for queue in worker.queues}

    def retired(self, agent_id: str) -> bool:
        """Tell whether an agent was retired, or no process has run it for `RETIRED` seconds."""
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
    """A step that waits for a worker to take it from `queue`."""

    what: str
    queue: str
    since: float


@dataclass(frozen=True)
class EndedTotals:
    """The last iteration that ended; `success` is None when its record is gone."""

    iteration: int
    at: float
    success: bool | None


@dataclass(frozen=True)
class AgentHealth:
    """The health of one agent.

    Attributes:
        entry: the agent as its workers announce it.
        iterations: the number of iterations that have begun; `ended` those that ended, by outcome.
        phase: its phase or `idle`, since `phase_since`, entered by `worker`.
        flight: the iteration in flight, which began at `flight_since`.
        observed: the start of the last iteration, which begins by observing.
        events_lost: the last time when an event could not be written; `events_error` is the error.
        format: the newest format version of the agent's state and its iteration in flight.
        deadline: the earliest deadline among the due members.
        waiting: steps that no worker has taken.
        intake: the number of waiting observations from outside.
        runs: the number of pending runs, the oldest since `oldest_run`.
        approvals: the number of pending approvals; `expired` of them are past their deadline.
        next_deadline: the deadline of the approval that expires next.
        last: the last iteration that ended.
        slot: the start of the last tick's slot; `scheduled` is the last start by the schedule.
        swept_at: the time of the last sweep.
        resumed_at: the time when it was resumed, if nothing has happened since.
        paused: the reason of its pause, if any; `frozen` is that of a freeze.
        revoked: the reason why its right to act is revoked, if it is.
        observers: the health of its observers.
        model: the totals of its model.
        notified: the number of notifications that ended in each state.
        procedures: the number of procedures that were stopped, went back, or ended in each state.
        verdicts: the number of executions with each verdict.
        autonomy: the number of grants to run alone that were given or taken away.
        audited: the number of sealed entries of the audit trail, by kind.
        suspended: the number of actions, by target, that are suspended because they did harm.
    """

    entry: AgentEntry
    iterations: int = 0
    ended: dict[str, int] = field(default_factory=dict)
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
    scheduled: float | None = None
    swept_at: float | None = None
    resumed_at: float | None = None
    paused: str | None = None
    frozen: str | None = None
    revoked: str | None = None
    observers: dict[str, ObserverHealth] = field(default_factory=dict)
    model: ModelTotals = field(default_factory=ModelTotals)
    notified: dict[str, int] = field(default_factory=dict)
    procedures: dict[str, int] = field(default_factory=dict)
    verdicts: dict[str, int] = field(default_factory=dict)
    autonomy: dict[str, int] = field(default_factory=dict)
    audited: dict[str, int] = field(default_factory=dict)
    suspended: int = 0

    @property
    def named_queues(self) -> dict[str, list[str]]:
        """The ids of its actions and endpoints, by the queue they name."""
        found: dict[str, list[str]] = {}
        catalog = self.entry.catalog
        parts: list[ActionInfo | EndpointInfo] = [*catalog.actions, *catalog.endpoints]
        for part in parts:
            if part.queue:
                found.setdefault(part.queue, []).append(part.id)
        return found

    @property
    def oldest(self) -> dict[str, float]:
        """The time since which the oldest step has been waiting, by queue."""
        found: dict[str, float] = {}
        for step in self.waiting:
            found[step.queue] = min(step.since, found.get(step.queue, step.since))
        return found


@dataclass(frozen=True)
class HealthSnapshot:
    """The health of a deployment.

    Attributes:
        roster: the agents and processes.
        server: the state of the Redis server; None without permission to ask.
        cluster: the masters of a cluster, whose fullest one `server` is; empty without one.
        skew: seconds by which the server's clock is ahead of this process's.
        latency: seconds until the server's first answer.
        frozen: the reason of the deployment's freeze, if any.
        agents: the health of each agent.
        unreached: the agents whose server does not answer.
        messages: the length of each queue whose broker answers, by agent and short name; None if
            none does. `broker_error` says which brokers do not answer, and why.
        archive: the state of the archive; None when none has run for a week.
        traces: the state of the export of traces, likewise.
    """

    roster: Roster
    server: ServerHealth | None
    skew: float
    latency: float
    frozen: str | None
    agents: list[AgentHealth]
    messages: dict[tuple[str, str], int] | None
    broker_error: str | None = None
    archive: ArchiveStatus | None = None
    traces: TraceStatus | None = None
    cluster: Sequence[MasterHealth] = ()
    unreached: Sequence[str] = ()

    def behind(self, status: FollowerStatus | None) -> float | None:
        """Seconds by which archive or traces are behind; None if nothing was copied."""
        if status is None or status.copied_at is None:
            return None
        return max(0.0, self.roster.now - status.copied_at.timestamp())

    def works(self, status: FollowerStatus | None) -> bool:
        """Tell whether archive or traces run, and what they write to answers."""
        return status is not None and status.works_at(from_ms(self.roster.now * 1000))


def _replaces(process: WorkerInfo, lost: WorkerInfo) -> bool:
    """Tell whether *process* started on the host of *lost*, for the same agents and queues."""
    same = process.role == lost.role and process.host == lost.host
    covers = set(process.agents) >= set(lost.agents) and set(process.queues) >= set(lost.queues)
    assert lost.last_beat is not None
    return same and covers and process.started_at > lost.started_at


def _rules(text: str) -> tuple[tuple[int, int], ...]:
    """The setting `save`: pairs of seconds and changes."""
    numbers = [int(number) for number in text.split()]
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))
