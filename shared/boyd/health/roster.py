"""The agents and processes of a deployment.

Times are seconds since the epoch on the Redis server's clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from boyd.health.agent_work import InFlightIteration
from boyd.health.declaration import HealthMetric, Samples
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


def _replaces(process: WorkerInfo, lost: WorkerInfo) -> bool:
    """Tell whether *process* started on the host of *lost*, for the same agents and queues."""
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
