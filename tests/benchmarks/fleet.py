"""A large fleet in virtual time: queues, the use of each Redis, and where it saturates.

A discrete-event model with the costs of docs/scaling.md. Each Redis is one thread that serves in
order of arrival; a worker has a core and eight threads; a message waits in the queue of its group
of workers until a thread is free. Each agent ticks at a time of its own. The same seed gives the
same figures.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import inf
from statistics import quantiles
from typing import Any

from benchmarks.report import Report
from benchmarks.thousand import DOCS, Formula
from boyd.settings.process_settings import TimingSettings
from boyd.store.fleet import ALIVE
from boyd.store.throttle import ANNOUNCE

TIMING = TimingSettings()
#: Seconds between the ticks of an agent, and the share of such agents.
INTERVALS = {30: 0.2, 60: 0.5, 300: 0.2, 3600: 0.1}
#: Observers of an iteration, in one batch, and the seconds for which they wait.
OBSERVERS, WAIT = 20, 0.05
#: Messages of an iteration: start, one batch, orient, decide and complete. The batch is the second.
STEPS, BATCH = 5, 1
#: Milliseconds of Redis for sweeping an agent, and for reading the heartbeat of a process.
SWEEPING, READING = 0.014, 0.0006
#: Milliseconds of the broker for a message, for each further agent of the workers.
LISTENING = 0.006
#: The share of the work of an iteration in Redis that is for messages.
MESSAGES = 0.22
#: Milliseconds between two ticks of a beat, and of a step that finds itself done already.
TICK, STALE = 1.0, 0.1
THREADS = 8
#: Sweeps that send a message again that nobody has taken, and about every 16th after them.
RESENT = (1, 2, 4, 8)


@dataclass(frozen=True)
class Costs:
    """Seconds of processor time, each of one step, message, process or agent."""

    state: float
    message: float
    loop: float
    observe: float
    heartbeat: float
    loop_heartbeat: float

    @classmethod
    def read(cls, observers: int = OBSERVERS) -> Costs:
        """Read the tables of docs/scaling.md."""
        cells = Formula.read(DOCS.read_text("utf-8")).cells

        def iteration(row: str) -> float:
            per_batch = cells[row, "+ per batch"] + observers * cells[row, "+ per observer"]
            return cells[row, "iteration"] + per_batch

        redis, loop = iteration("ms of Redis"), iteration("of these, ms of the worker of `loop`")
        every = TIMING.heartbeat_interval
        return cls(
            state=(1 - MESSAGES) * redis / (STEPS + 1) / 1000,
            message=MESSAGES * redis / STEPS / 1000,
            loop=loop / (STEPS - 1) / 1000,
            observe=(iteration("ms of all workers") - loop) / 1000,
            heartbeat=every * cells["ms of Redis", "worker on a host"] / 1000,
            loop_heartbeat=every * cells["ms of Redis", "worker of `loop`"] / 1000,
        )


@dataclass(frozen=True)
class Shape:
    """A deployment: agents in groups, each with workers of its own, some of them of `loop`."""

    agents: int
    masters: int
    #: Servers for messages; 0: the only master carries them.
    brokers: int
    group_agents: int = 40
    group_workers: int = 8
    group_loop: int = 2
    intervals: tuple[tuple[int, float], ...] = tuple(INTERVALS.items())
    #: False: agents with the same interval tick together, as if all had the same `loop_offset`.
    spread: bool = True

    @property
    def groups(self) -> int:
        """Groups of agents."""
        return -(-self.agents // self.group_agents)

    @property
    def workers(self) -> int:
        """Processes of workers."""
        return self.groups * self.group_workers


class Server:
    """A Redis, which does one thing after the other."""

    def __init__(self) -> None:
        self.free = self.busy = self.longest = 0.0

    def serve(self, at: float, seconds: float) -> float:
        """Do something that arrives *at* a time; return when it is done."""
        begins = max(at, self.free)
        self.longest = max(self.longest, begins - at)
        self.busy += seconds
        self.free = begins + seconds
        return self.free


class Pool:
    """The workers of a group that take the same queue: threads, cores, and what waits."""

    def __init__(self, workers: int) -> None:
        self.idle = THREADS * workers
        self.cores = [0.0] * workers
        self.busy = 0.0
        self.waiting: deque[Message] = deque()

    def compute(self, at: float, seconds: float) -> float:
        """Compute on the core that is free first; return when it is done."""
        ends = max(at, self.cores[0]) + seconds
        self.busy += seconds
        heapq.heapreplace(self.cores, ends)
        return ends


@dataclass(slots=True)
class Agent:
    """An agent, with at most one iteration in flight, which began then."""

    group: Group
    master: Server
    broker: Server
    began: float | None = None


@dataclass(slots=True)
class Message:
    """A message of an agent; a copy finds nothing to do."""

    agent: Agent
    step: int
    sent: float
    copy: bool = False
    sweeps: int = 0


class Group:
    """Agents with workers of their own, which sweep them each second."""

    def __init__(self, shape: Shape) -> None:
        self.loop = Pool(shape.group_loop)
        self.others = Pool(shape.group_workers - shape.group_loop)
        self.agents: list[Agent] = []
        self.on: Counter[Server] = Counter()

    def pool(self, message: Message) -> Pool:
        """The workers that take a message."""
        return self.others if message.step == BATCH else self.loop


@dataclass
class Figures:
    """The outcome: seconds of iterations, slots that were missed, and messages sent again."""

    durations: list[float] = field(default_factory=list)
    missed: int = 0
    resent: int = 0
    deepest: int = 0
    #: The most seconds for which a master was busy in a minute.
    peak: dict[Server, float] = field(default_factory=dict)

    def duration(self, percent: int) -> float:
        """The percentile of the durations."""
        return quantiles([*self.durations, inf, inf], n=100)[percent - 1]


class Fleet:
    """A deployment in virtual time."""

    def __init__(self, shape: Shape, costs: Costs, seed: int = 1) -> None:
        self.shape, self.costs, self.time = shape, costs, 0.0
        self.figures = Figures()
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        draw = random.Random(seed)
        self.masters = [Server() for _ in range(shape.masters)]
        self.brokers = [Server() for _ in range(shape.brokers)] or self.masters
        #: All heartbeats are in one slot.
        self.home = self.masters[0]
        groups = [Group(shape) for _ in range(shape.groups)]
        self.pools = [pool for group in groups for pool in (group.loop, group.others)]
        self.waiting = 0
        for number in range(shape.agents):
            group = groups[number // shape.group_agents]
            agent = Agent(group, draw.choice(self.masters), draw.choice(self.brokers))
            group.agents.append(agent)
            group.on[agent.master] += 1
        for group in groups:
            self._at(draw.uniform(0, 1), self._sweep, group)
            self._at(draw.uniform(0, 2), self._beat, group)
            rest = list(group.agents)
            for interval, share in shape.intervals:
                some = rest[: round(share * len(group.agents))]
                del rest[: len(some)]
                for together in [[agent] for agent in some] if shape.spread else [some]:
                    begins = draw.uniform(0, interval) if shape.spread else 0
                    self._at(begins, self._tick, interval, together)
        self._at(60, self._minute, {})

    def run(self, seconds: float) -> Figures:
        """Go on until that time."""
        while self._events[0][0] < seconds:
            self.time, _, function, arguments = heapq.heappop(self._events)
            function(*arguments)
        return self.figures

    def fail(self, master: int, at: float, seconds: float) -> None:
        """Let a master be away: what it is asked waits until its replica answers."""

        def away() -> None:
            self.masters[master].free = max(self.masters[master].free, self.time + seconds)

        self._at(at, away)

    def _at(self, time: float, function: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, function, arguments))

    # Iterations

    def _tick(self, interval: int, agents: list[Agent]) -> None:
        """Begin a slot: the beat of a group ticks for one agent after the other."""
        self._start(iter(agents))
        self._at(self.time + interval, self._tick, interval, agents)

    def _start(self, agents: Iterator[Agent]) -> None:
        agent = next(agents, None)
        if agent is None:
            return
        answered = agent.master.serve(self.time, self.costs.state)
        if agent.began is None:
            agent.began = self.time
            self._at(answered, self._send, Message(agent, 0, answered))
        else:
            self.figures.missed += 1
        self._at(answered + TICK / 1000, self._start, agents)

    def _send(self, message: Message) -> None:
        others = len(message.agent.group.agents) - 1
        cost = self.costs.message + others * LISTENING / 1000
        self._at(message.agent.broker.serve(self.time, cost), self._deliver, message)

    def _deliver(self, message: Message) -> None:
        pool = message.agent.group.pool(message)
        if pool.idle:
            self._take(pool, message)
            return
        pool.waiting.append(message)
        self.waiting += 1
        self.figures.deepest = max(self.figures.deepest, self.waiting)

    def _take(self, pool: Pool, message: Message) -> None:
        pool.idle -= 1
        cost = self.costs.observe if message.step == BATCH else self.costs.loop
        ends = pool.compute(self.time, STALE / 1000 if message.copy else cost)
        wait = WAIT if message.step == BATCH and not message.copy else 0.0
        self._at(ends + wait, self._store, pool, message)

    def _store(self, pool: Pool, message: Message) -> None:
        cost = STALE / 1000 if message.copy else self.costs.state
        self._at(message.agent.master.serve(self.time, cost), self._leave, pool, message)

    def _leave(self, pool: Pool, message: Message) -> None:
        pool.idle += 1
        if pool.waiting:
            self.waiting -= 1
            self._take(pool, pool.waiting.popleft())
        agent = message.agent
        if message.copy:
            return
        if message.step + 1 < STEPS:
            self._send(Message(agent, message.step + 1, self.time))
            return
        assert agent.began is not None
        self.figures.durations.append(self.time - agent.began)
        agent.began = None

    # Periodic work

    def _sweep(self, group: Group) -> None:
        """Sweep the agents of a group, and send again what nobody has taken in time."""
        answered = max(
            master.serve(self.time, agents * SWEEPING / 1000) for master, agents in group.on.items()
        )
        resend_after = TIMING.resend_after
        for message in (*group.loop.waiting, *group.others.waiting):
            due = message.sent + resend_after * (message.sweeps + 1)
            if message.copy or self.time < due:
                continue
            message.sweeps += 1
            if message.sweeps in RESENT or message.sweeps % 16 == 0:
                self.figures.resent += 1
                self._send(replace(message, sent=self.time, copy=True))
        self._at(max(answered, self.time + TIMING.sweep), self._sweep, group)

    def _beat(self, group: Group) -> None:
        """Record the heartbeats of a group; now and then its workers of `loop` read all others."""
        shape = self.shape
        reading = shape.workers * READING / 1000 * TIMING.heartbeat_interval / ANNOUNCE
        loop = self.costs.loop_heartbeat + reading
        others = (shape.group_workers - shape.group_loop) * self.costs.heartbeat
        answered = self.home.serve(self.time, others + shape.group_loop * loop)
        self._at(answered + TIMING.heartbeat_interval, self._beat, group)

    def _minute(self, before: dict[Server, float]) -> None:
        servers = {*self.masters, *self.brokers}
        peak = self.figures.peak
        for server in servers:
            peak[server] = max(peak.get(server, 0), server.busy - before.get(server, 0))
        self._at(self.time + 60, self._minute, {server: server.busy for server in servers})


#: One Redis, and clusters of three and nine masters with servers for messages beside them.
DEPLOYMENTS = {"one Redis": (1, 0), "3 masters": (3, 1), "9 masters": (9, 3)}
#: Agents and seconds of the run, and the time at which a master fails, for how long.
AGENTS, SECONDS, FAILURE, AWAY = 10_000, 600.0, 300.0, 6.0


def bears(shape: Shape, costs: Costs) -> bool:
    """Check that such a deployment keeps up.

    No slot is missed, no server has more to do than time for it, and no heartbeat comes so late
    that a process counts as dead.
    """
    fleet, seconds = Fleet(shape, costs), 91
    figures = fleet.run(seconds)
    overloaded = max(server.busy for server in (*fleet.masters, *fleet.brokers)) > seconds
    late = fleet.home.longest > ALIVE - 1.2 * TIMING.heartbeat_interval
    finished = len(figures.durations) > 1.2 * shape.agents
    return finished and not (figures.missed or overloaded or late)


def largest(masters: int, brokers: int, costs: Costs, step: int = 400) -> int:
    """The most agents, with a worker for five of them, that such a deployment bears."""
    few, many = 0, 64 * step
    while many - few > step:
        agents = (few + many) // 2 // step * step
        fits = bears(Shape(agents, masters, brokers), costs)
        few, many = (agents, many) if fits else (few, agents)
    return few


def simulate(report: Report) -> None:
    """A fleet on each kind of deployment, with the failure of a master, and the largest of each."""
    costs = Costs.read()
    for name, (masters, brokers) in DEPLOYMENTS.items():
        shape = Shape(AGENTS, masters, brokers)
        fleet = Fleet(shape, costs)
        fleet.fail(masters - 1, FAILURE, AWAY)
        _tell(report, f"{shape.workers} workers, {name}", fleet, SECONDS)
        without_home = Fleet(shape, costs)
        without_home.fail(0, 60, AWAY)
        slowest = max(without_home.run(125).durations)
        report.tell(f"{name}: the slowest iteration while home is away", slowest, "s")
        together = Fleet(replace(shape, spread=False), costs).run(125).duration(50)
        report.tell(f"{name}: an iteration if all ticked together, p50", together, "s")
    for name, (masters, brokers) in DEPLOYMENTS.items():
        report.tell(f"the largest with {name}", largest(masters, brokers, costs), "agents")


def _tell(report: Report, name: str, fleet: Fleet, seconds: float) -> None:
    figures = fleet.run(seconds)
    report.tell(f"{name}: iterations", len(figures.durations) / seconds, "1/s")
    report.tell(f"{name}: slots missed", figures.missed, "")
    report.tell(f"{name}: messages sent again", figures.resent, "")
    report.tell(f"{name}: most messages waiting", figures.deepest, "")
    for percent in (50, 99):
        report.tell(f"{name}: an iteration, p{percent}", figures.duration(percent), "s")
    others = fleet.masters[1:] or fleet.masters
    for kind, servers in (("home", [fleet.home]), ("other", others), ("broker", fleet.brokers)):
        use = max(server.busy for server in servers) / seconds
        report.tell(f"{name}: {kind} in use", 100 * use, "%")
        peak = max(figures.peak[server] for server in servers) / 60
        report.tell(f"{name}: {kind} in its busiest minute", 100 * peak, "%")
        report.tell(f"{name}: longest wait for {kind}", max(s.longest for s in servers), "s")
