"""A deployment in one thread: processes, their tasks, virtual time, messages and faults.

Each thread of a process is a greenlet. It gives up control at every command to Redis, at every
message and when it sleeps; the world chooses who goes on. All choices come from one seed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import redis
from greenlet import GreenletExit, getcurrent, greenlet

from boyd import Agent
from boyd.errors import ArchiveUnavailable, StoreError
from simulation.store import SimulatedClient, SimulatedRedis
from simulation.strategies import Strategy

#: Virtual seconds since the epoch at which every world begins.
BEGIN = 1_800_000_000.0
#: Scripts that a timeline leaves out, as it does commands that are no scripts.
PERIODIC = {
    *("acquire_throttle", "renew_heartbeat", "record_heartbeat", "confirm_freezes", "take_due"),
    *("read_in_flight", "read_page", "seal_audit", "date_approvals"),
}
#: Seconds of a fault after which all others have to go on without what it holds up.
LONGEST = 15.0

FaultKind = Literal[
    "crash before",
    "crash after",
    "terminate",
    "pause",
    "cut off",
    "outage",
    "fail over",
    "clock",
    "refuse",
    "error",
    "lose answer",
    "stall",
    "drop",
    "repeat",
    "delay",
]
#: Faults of a process, whose work may be lost or repeated after them.
OF_PROCESSES: frozenset[FaultKind] = frozenset(
    {"crash before", "crash after", "pause", "cut off", "stall", "fail over"}
)
OF_MESSAGES: frozenset[FaultKind] = frozenset({"drop", "repeat", "delay"})
#: Faults after which no function of a plugin is called again for the same work.
HARMLESS = OF_MESSAGES | {"terminate"}


@dataclass(frozen=True)
class Fault:
    """A fault at a point: a script, another command, a message, or a moment of an action.

    Attributes:
        point: the name of the script, command or task, or the kind of an `Effect`.
        number: counts how often anybody has come to that point, from 1.
        seconds: of a pause, stall, delay or outage, until work is tried again after an error, or
            until a process that has crashed, or that drained and ended, starts again; or by which
            the clock of Redis steps ahead, or back if they are negative.
        lost: the number of writes that the Redis lacks which takes over.
    """

    kind: FaultKind
    point: str
    number: int
    seconds: float = 0.0
    lost: int = 0

    def __str__(self) -> str:
        lasts = f" for {self.seconds:g} s" if self.seconds else ""
        lost = f", {self.lost} writes lost" if self.lost else ""
        return f"{self.kind} at {self.point} {self.number}{lasts}{lost}"


_REFUSAL = Fault("refuse", "", 0)


@dataclass(eq=False)
class Process:
    """A process of the deployment.

    Attributes:
        start: run in its first task, also after a restart.
        mortal: whether it can crash and stand still.
        drain: run in a task of its own on SIGTERM; the process ends with it.
    """

    name: str
    start: Callable[[Process], None]
    mortal: bool = True
    drain: Callable[[], None] | None = None
    life: int = 1
    pid: int = 0
    dead: bool = False
    draining: bool = False
    paused_until: float = 0.0
    cut_off_until: float = 0.0

    @property
    def label(self) -> str:
        """Its name, with the number of its life."""
        return f"{self.name}.{self.life}" if self.mortal else self.name


class Task(greenlet):  # type: ignore[misc]
    """A thread of a process."""

    def __init__(self, world: World, process: Process, work: Callable[[], object]) -> None:
        super().__init__(work, world.main)
        self.process = process
        self.message: Message | None = None


@dataclass(frozen=True)
class Message:
    """A message of the broker: the task *name* with *args*, then its successor in a chain."""

    queue: str
    name: str
    args: tuple[Any, ...]
    then: Message | None = None


#: An action is given its params, begins, ends or is looked at; or another function is called.
EffectKind = Literal["way", "begin", "end", "look", "call"]


@dataclass(frozen=True)
class Effect:
    """An act of a plugin's function outside the deployment, and the process that called it."""

    at: float
    kind: EffectKind
    execution: str
    target: str
    process: str


@dataclass(frozen=True)
class Answer:
    """An answer that a client got."""

    at: float
    client: str
    about: str
    value: Any


@dataclass
class World:
    """One run of a scenario.

    Attributes:
        settle: seconds within which all must have ended after the last fault.
    """

    server: SimulatedRedis
    random: Random
    strategy: Strategy
    faults: Sequence[Fault]
    settle: float
    agent: Agent
    now: float = BEGIN
    effects: list[Effect] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    timeline: list[tuple[float, str, str]] = field(default_factory=list)
    steps: int = 0

    def __post_init__(self) -> None:
        self.main = getcurrent()
        self.over = False
        self._due = {(fault.point, fault.number): fault for fault in self.faults}
        #: How often anybody has come to each point.
        self.counts: Counter[str] = Counter()
        #: When who has come to which.
        self.visits: list[tuple[float, str, str]] = []
        #: The faults that came, each with its time and process.
        self.past: list[tuple[float, str, Fault]] = []
        #: The messages that were sent, and those of them that were lost, each with its time.
        self.sent: list[tuple[float, Message]] = []
        self.lost: list[tuple[float, Message]] = []
        #: What clients asked, to be asked again at the end.
        self.questions: list[tuple[str, Callable[[], Any]]] = []
        self._down_until = 0.0
        #: Seconds by which the clock of Redis is ahead.
        self._ahead = 0.0
        self._ready: list[Task] = []
        self._tasks: list[Task] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._consumers: list[tuple[Task, frozenset[str]]] = []
        self._waiting: list[Message] = []
        self._travelling = 0
        self._busy = 0
        self._clients = 0
        self._last_fault = self.now
        self._pids = 0
        #: The times from and until which all writes were lost.
        self.losses: list[tuple[float, float]] = []
        journals = any(fault.kind == "fail over" for fault in self.faults)
        self.server.reset(f"{self.random.getrandbits(64):016x}", journals=journals)

    def add(self, name: str, start: Callable[[Process], None]) -> None:
        """Start a process that supervisors keep alive."""
        self._launch(Process(name, start))

    def add_client(self, name: str, work: Callable[[], None]) -> None:
        """Start a client; the world ends when all of them have."""
        self._clients += 1

        def run() -> None:
            work()
            self._clients -= 1

        self.spawn(run, Process(name, lambda _: None, mortal=False))

    def spawn(self, work: Callable[[], object], process: Process | None = None) -> None:
        """Start a task of *process*, or of the one that asks for it."""

        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - a thread of the product has died
                self.problems.append(f"a thread raised {error!r}")

        task = Task(self, process or getcurrent().process, run)
        self._tasks.append(task)
        self._ready.append(task)

    def sleep(self, seconds: float) -> None:
        """Let the others go on for *seconds*."""
        task = getcurrent()
        if self.over:
            raise GreenletExit
        self._after(seconds, lambda: self._wake(task))
        self._switch()

    def block(self, waiters: list[Task], seconds: float | None = None) -> None:
        """Wait until another task wakes this one, or for so many *seconds*."""
        task = getcurrent()
        waiters.append(task)

        def ring() -> None:
            if task in waiters:
                waiters.remove(task)
                self._wake(task)

        if seconds is not None:
            self._after(seconds, ring)
        self._switch()

    def wake(self, waiters: list[Task]) -> None:
        """Let those tasks go on."""
        for task in waiters:
            self._wake(task)
        waiters.clear()

    def run(self) -> None:
        """Let everything happen until the clients have what they want, and nothing is left."""
        while self._goes_on():
            if not self._ready and not self._timers:
                break
            if not self._ready:
                self._ring()
            if self._ready:
                task = self.strategy.choose(self._ready, self.steps)
                self._ready.remove(task)
                task.switch()
        if self._clients:
            self.problems.append(
                f"{self._clients} clients still wait {self.settle:g} s after all faults"
            )

    def _ring(self) -> None:
        """Let time pass until the next timers; all of one moment ring before anybody goes on."""
        self.now = self._timers[0][0]
        while self._timers and self._timers[0][0] == self.now:
            heapq.heappop(self._timers)[2]()

    def is_quiet(self) -> bool:
        """Report whether only the client that asks still wants something."""
        return self._clients == 1

    def end(self) -> None:
        """End all tasks; none of them does anything any more."""
        self.over = True
        for task in self._tasks:
            if not task.dead:
                task.throw(GreenletExit)

    def _goes_on(self) -> bool:
        if self.now > self._last_fault + self.settle:
            return False
        return bool(self._clients or self._travelling or self._waiting or self._busy)

    def _launch(self, process: Process) -> None:
        self._pids += 1
        process.pid = self._pids
        self.note(process.label, "starts")

        def start() -> None:
            try:
                process.start(process)
            except StoreError as error:  # it ends, and its supervisor starts it again
                self.note(process.label, f"ends: {error!r}")
                self._crash(process, 1.0)

        self.spawn(start, process)

    def _switch(self) -> None:
        if self.over:
            raise GreenletExit
        self.main.switch()
        if self.over:
            raise GreenletExit

    def _wake(self, task: Task) -> None:
        process = task.process
        if process.dead:
            return
        if process.paused_until > self.now:
            self._after(process.paused_until - self.now, lambda: self._wake(task))
        else:
            self._ready.append(task)

    def _after(self, seconds: float, ring: Callable[[], None]) -> None:
        self._timer_count += 1
        heapq.heappush(self._timers, (self.now + max(0.0, seconds), self._timer_count, ring))

    def client(self) -> SimulatedClient:
        """A connection to Redis."""
        return SimulatedClient.of(self.server, self._command)

    def _command(self, label: str, run: Callable[[], Any]) -> Any:
        """Run a command for the task that asks; the judge is no task, and is not held up."""
        if not isinstance(getcurrent(), Task):
            self._set_clock()
            return run()
        fault = self._reach(label)
        if fault is not None and fault.kind == "refuse":
            raise redis.ConnectionError("refused")
        if fault is not None and fault.kind == "error":
            raise redis.ResponseError("an error")
        self._set_clock()
        reply = run()
        if fault is not None and fault.kind == "crash after":
            self._crash(getcurrent().process, fault.seconds)
        if fault is not None and fault.kind in ("lose answer", "crash after"):
            raise redis.TimeoutError("the answer is lost")
        return reply

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction of the archive: it may be refused, or done without an answer.

        Raises:
            ArchiveUnavailable: the database does not answer.
        """
        if not isinstance(getcurrent(), Task):
            yield
            return
        fault = self._reach("transaction")
        kind = fault.kind if fault is not None and fault is not _REFUSAL else None
        if kind == "refuse":
            raise ArchiveUnavailable("refused")
        yield
        if fault is not None and kind == "crash after":
            self._crash(getcurrent().process, fault.seconds)
        if kind == "lose answer":
            raise ArchiveUnavailable("the answer is lost")

    def _set_clock(self) -> None:
        self.server.set_time(round((self.now + self._ahead) * 1e6), self.now)

    def _reach(self, label: str) -> Fault | None:
        """Come to a command or message, when it is this task's turn; the fault there."""
        task = getcurrent()
        process = task.process
        latency = self.strategy.latency()
        if latency:
            self.sleep(latency)
        else:
            self._ready.append(task)
            self._switch()
        self.steps += 1
        point = label.partition(" ")[0]
        fault = self._fault_at(point, process)
        if fault is not None or not (point.isupper() or point in PERIODIC):
            self.note(process.label, f"{self.steps} {label}")
        if fault is not None:
            self._strike(fault, process)
        if max(process.cut_off_until, self._down_until) > self.now:
            return _REFUSAL
        if fault is not None and fault.kind == "crash before":
            return _REFUSAL  # of a client, which does not crash
        return fault

    def _fault_at(self, point: str, process: Process) -> Fault | None:
        """Count a point, and return the fault there."""
        self.counts[point] += 1
        self.visits.append((self.now, process.label, point))
        return self._due.get((point, self.counts[point]))

    def _strike(self, fault: Fault, process: Process) -> None:
        """Let a fault come, as far as it is one of a process or of Redis."""
        self._record(fault, process.label)
        if fault.kind == "crash before":
            self._crash(process, fault.seconds)
        elif fault.kind == "terminate":
            self._terminate(process, fault.seconds)
        elif fault.kind == "outage":
            self._down_until = self.now + fault.seconds
        elif fault.kind == "fail over":
            self._down_until = self.now + fault.seconds
            since = self.server.fail_over(f"{self.random.getrandbits(64):016x}", fault.lost)
            if since is not None:
                self.losses.append((since, self.now))
        elif fault.kind == "clock":
            self._ahead += fault.seconds
        elif fault.kind == "cut off":
            process.cut_off_until = self.now + fault.seconds
        elif fault.kind == "pause" and process.mortal:
            self._pause(process, fault.seconds)
            self.sleep(0)
        elif fault.kind in ("pause", "stall"):
            self.sleep(fault.seconds)

    def _record(self, fault: Fault, who: str) -> None:
        of_redis = fault.kind in ("outage", "fail over", "error")
        holds_up = fault.seconds if of_redis else min(fault.seconds, LONGEST)
        self._last_fault = max(self._last_fault, self.now + holds_up)
        self.past.append((self.now, who, fault))
        self.note(who, f"*** {fault}")

    def _crash(self, process: Process, seconds: float) -> None:
        """End a process at once, and start it again later; a client only loses its connection."""
        if not process.mortal:
            return
        process.dead = True
        self._ready = [task for task in self._ready if task.process is not process]
        self._consumers = [entry for entry in self._consumers if entry[0].process is not process]
        self._busy -= sum(
            task.message is not None for task in self._tasks if task.process is process
        )
        heir = Process(process.name, process.start, life=process.life + 1)
        self._after(seconds, lambda: self._launch(heir))
        self._switch()

    def _terminate(self, process: Process, seconds: float) -> None:
        """Let a process that is up drain and end, and start it again later."""
        if process.drain is None or process.draining:
            return
        process.draining = True
        drain = process.drain

        def end() -> None:
            drain()
            self.note(process.label, "has drained")
            self._crash(process, seconds)

        self.spawn(end, process)
        for entry in [entry for entry in self._consumers if entry[0].process is process]:
            self._consumers.remove(entry)
            self._wake(entry[0])

    def is_idle(self, process: Process) -> bool:
        """Report whether no task of a process handles a message."""
        return all(t.message is None for t in self._tasks if t.process is process)

    def _pause(self, process: Process, seconds: float) -> None:
        process.paused_until = self.now + seconds
        still = [task for task in self._ready if task.process is process]
        self._ready = [task for task in self._ready if task.process is not process]
        for task in still:
            self._wake(task)

    def send(self, message: Message) -> None:
        """Send a message, which may be lost, repeated or late."""
        fault = self._reach(f"{message.name} {message.args[1:]} is sent")
        self.sent.append((self.now, message))
        kind = fault.kind if fault is not None else None
        seconds = fault.seconds if fault is not None else 0.0
        if kind == "refuse":
            return  # the dispatcher leaves it to the sweeper
        if kind == "drop":
            self.lost.append((self.now, message))
        else:
            self._travel(message, seconds * (kind == "delay") + self.strategy.latency())
        if kind == "repeat":
            self._travel(message, seconds)
        if kind == "crash after":
            self._crash(getcurrent().process, seconds)

    def receive(self, names: frozenset[str]) -> Message | None:
        """Wait for a message of one of these queues; None while the process drains."""
        task = getcurrent()
        if task.message is not None:
            task.message = None
            self._busy -= 1
        if task.process.draining:
            return None
        self._consumers.append((task, names))
        self._hand_over()
        self._switch()
        message: Message | None = task.message
        return message

    def _travel(self, message: Message, seconds: float) -> None:
        self._travelling += 1

        def arrive() -> None:
            self._travelling -= 1
            self._waiting.append(message)
            self._hand_over()

        self._after(seconds, arrive)

    def _hand_over(self) -> None:
        for message in list(self._waiting):
            able = [entry for entry in self._consumers if message.queue in entry[1]]
            if able:
                entry = able[self.random.randrange(len(able))]
                self._consumers.remove(entry)
                self._waiting.remove(message)
                entry[0].message = message
                self._busy += 1
                self._wake(entry[0])

    def note(self, who: str, text: str) -> None:
        """Write a line of the timeline."""
        self.timeline.append((self.now, who, text))

    def effect(self, kind: EffectKind, execution: str, target: str = "") -> None:
        """Record what a function of a plugin does."""
        if self.over:
            raise GreenletExit
        process = getcurrent().process
        self.note(process.label, f"!!! {kind} {execution} {target}")
        self.effects.append(Effect(self.now, kind, execution, target, process.label))
        fault = self._fault_at(kind, process)
        if fault is not None:
            self._strike(fault, process)

    def answer(self, client: str, about: str, value: Any) -> None:
        """Record an answer that a client got."""
        self.note(client, f"??? {about}: {getattr(value, 'state', value)}")
        self.answers.append(Answer(self.now, client, about, value))

    def ask_again(self) -> None:
        """Ask all questions of the clients once more."""
        for about, look in self.questions:
            self.answer("later", about, look())
