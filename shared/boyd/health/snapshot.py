"""The health of a deployment, as `boyd.health.reader` reads and `boyd.health.checks` judges it.

Times are seconds since the epoch on the Redis server's clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from boyd.health.agent_health import AgentHealth
from boyd.health.agent_replies import InFlightIteration
from boyd.health.declaration import HealthMetric, Number, Samples, declare, gauge, health_fields
from boyd.health.server_health import MasterHealth, ServerHealth
from boyd.models import from_ms
from boyd.models.loop import ArchiveStatus, FollowerStatus, TraceStatus
from boyd.store.fleet import ALIVE, AgentEntry, Role, WorkerInfo

#: Seconds without any process running it, after which an agent counts as retired.
RETIRED = 86_400.0
_ROLES: tuple[Role, ...] = ("worker", "beat")


@dataclass(frozen=True)
class Roster:
    """The agents and processes of a deployment.

    Attributes:
        now: the Redis server's time.
        agents: all registered agents, by id.
        processes: the processes with a heartbeat in the last hour, alive or not.
        unreadable: names of processes and agents whose announcement cannot be read.
        foreign: keys that the whole deployment needs and that hold another type.
        swept: the time of the last sweep, by agent.
        flights: the iterations in flight, by agent.
    """

    now: float
    agents: dict[str, AgentEntry]
    processes: list[WorkerInfo]
    unreadable: list[str] = field(default_factory=list)
    swept: dict[str, float] = field(default_factory=dict)
    flights: dict[str, InFlightIteration] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)

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

    def live_queues(self, agent_id: str) -> set[str]:
        """The queues that live workers consume for an agent, by short name."""
        return {queue for worker in self.live("worker", agent_id) for queue in worker.queues}

    def is_retired(self, agent_id: str) -> bool:
        """Report whether an agent was retired, or no process has run it for `RETIRED` seconds."""
        entry = self.agents.get(agent_id)
        if entry is not None and entry.retired_at is not None:
            return True
        swept = self.swept.get(agent_id)
        return swept is not None and self.now - swept > RETIRED and not self.live(None, agent_id)

    def _of(self, role: Role | None, agent_id: str | None) -> Iterator[WorkerInfo]:
        for process in self.processes:
            if role in (None, process.role) and (agent_id is None or agent_id in process.agents):
                yield process


def _replaces(process: WorkerInfo, lost: WorkerInfo) -> bool:
    """Report whether *process* started on the host of *lost*, for the same agents and queues."""
    same = process.role == lost.role and process.host == lost.host
    covers = set(process.agents) >= set(lost.agents) and set(process.queues) >= set(lost.queues)
    assert lost.last_beat is not None
    return same and covers and process.started_at > lost.started_at


def _role_counts(roster: Roster, now: float) -> Samples:
    counts = Counter(process.role for process in roster.live())
    return [((role,), counts[role]) for role in _ROLES]


def _agent_role_counts(roster: Roster, now: float) -> Samples:
    return [
        ((name, role), sum(process.role == role for process in roster.live(None, name)))
        for name in roster.agents
        for role in _ROLES
    ]


def _version_counts(roster: Roster, now: float) -> Samples:
    return Counter((process.role, process.version) for process in roster.live()).items()


#: The metrics of the live processes.
PROCESS_METRICS = (
    HealthMetric("boyd_workers", "Live processes.", _role_counts, ("role",)),
    HealthMetric(
        "boyd_agent_workers", "Live processes of an agent.", _agent_role_counts, ("agent", "role")
    ),
    HealthMetric(
        "boyd_versions", "Live processes of a version.", _version_counts, ("role", "version")
    ),
)


def works(status: FollowerStatus, now: float) -> bool:
    """Report whether archive or traces run and can write."""
    return status.works_at(from_ms(now * 1000))


def seconds_behind(status: FollowerStatus, now: float) -> float | None:
    """Seconds by which archive or traces are behind; None if nothing was copied."""
    return None if status.copied_at is None else max(0.0, now - status.copied_at.timestamp())


def _follower_gauge(name: str, help: str, number: Number) -> HealthMetric:
    """A gauge of archive or traces, unless none has run for a week."""
    return HealthMetric(name, help, lambda status, now: status and [((), number(status, now))])


@health_fields
class HealthSnapshot:
    """The health of a deployment."""

    roster: Roster = declare("The agents and processes.", None, *PROCESS_METRICS)
    server: ServerHealth | None = declare(
        "The state of the Redis server; None without permission to ask."
    )
    skew: float = declare(
        "Seconds by which the server's clock is ahead of this process's.",
        None,
        gauge("boyd_redis_clock_skew_seconds", "Offset of the clock of Redis from the local one."),
    )
    latency: float = declare(
        "Seconds until the server's first answer.",
        None,
        gauge("boyd_redis_answer_seconds", "Response time of Redis."),
    )
    frozen: str | None = declare("The reason of the deployment's freeze, if any.")
    agents: list[AgentHealth] = declare("The health of each agent.")
    messages: dict[tuple[str, str], int] | None = declare(
        "The length of each queue whose broker answers, by agent and short name.",
        None,
        HealthMetric(
            "boyd_queue_messages",
            "Messages that wait for a worker.",
            lambda messages, _: (messages or {}).items(),
            ("agent", "queue"),
        ),
    )
    broker_error: str | None = declare(
        "Which brokers do not answer, and why.",
        None,
        gauge("boyd_broker_up", "1 if all brokers answer.", lambda error, _: error is None),
    )
    archive: ArchiveStatus | None = declare(
        "The state of the archive; None when none has run for a week.",
        None,
        _follower_gauge(
            "boyd_archive_up", "1 if the archive runs and its database answers.", works
        ),
        _follower_gauge(
            "boyd_archive_behind_seconds",
            "Time by which the archive is behind Redis.",
            seconds_behind,
        ),
        HealthMetric(
            "boyd_archive_records",
            "Records that the archive process has copied since its start.",
            lambda status, _: status and [((), status.copied)],
            counts=True,
        ),
    )
    traces: TraceStatus | None = declare(
        "The state of the export of traces; None when none has run for a week.",
        None,
        _follower_gauge(
            "boyd_traces_up", "1 if the export of traces runs and its collector answers.", works
        ),
        _follower_gauge(
            "boyd_traces_behind_seconds",
            "Time by which the export of traces is behind Redis.",
            seconds_behind,
        ),
        HealthMetric(
            "boyd_traces_spans",
            "Spans that were exported since the process started, or refused.",
            lambda status, _: (
                status and [(("exported",), status.copied), (("refused",), status.refused)]
            ),
            ("outcome",),
            counts=True,
        ),
    )
    unread: Collection[str] = declare(
        "Those of `archive` and `traces` whose announcement is there or refused, but unreadable."
    )
    cluster: Sequence[MasterHealth] = declare(
        "The masters of a cluster, whose fullest one `server` is; empty without one."
    )
    unreached: Sequence[str] = declare("The agents whose server does not answer.")
