"""The surroundings of the shipped code in a world: time, chance, threads, broker, connections."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from threading import get_ident
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import patch

from celery import Celery
from celery.beat import ScheduleEntry
from celery.exceptions import Ignore
from greenlet import getcurrent

from boyd import Agent
from boyd.export import work_follower
from boyd.export.archive import copier
from boyd.messaging.celery_app import JOB, TASKS
from boyd.messaging.dispatcher import FOLLOWS, BatchHint
from boyd.models import Phase
from boyd.phases import time_limit
from boyd.runtime import leases
from boyd.settings.process_settings import Settings, WorkerSettings
from boyd.store import events
from boyd.store.server.connection import Client
from boyd.text import queues
from boyd_worker import agent_host, beat, maintenance, worker
from simulation.world import Message, Process, Task, World

#: Threads of a worker that take messages.
CONCURRENCY = 2


class _Event:
    """`threading.Event` in a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._flag = False
        self._waiters: list[Task] = []

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True
        self._world.wake(self._waiters)

    def clear(self) -> None:
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._flag:
            self._world.block(self._waiters, timeout)
        return self._flag


class _Thread:
    """`threading.Thread` in a world: a task of the process that starts it."""

    def __init__(self, world: World, target: Callable[[], None], **_: Any) -> None:
        self._world = world
        self._target = target
        self._ended = _Event(world)
        self.ident: int | None = None

    def start(self) -> None:
        self.ident = 1
        self._world.spawn(self._run)

    def _run(self) -> None:
        self._target()
        self._ended.set()

    def join(self, timeout: float) -> None:
        self._ended.wait(timeout)


class _Tail(events.StreamTail):
    """Waits for entries of streams, as those who ask now and then."""

    def __init__(self, world: World, client: Client) -> None:
        super().__init__(client)
        self._world = world

    def read(self, after: Mapping[str, str], count: int, seconds: float) -> events.Found:
        until = self._world.now + seconds
        while True:
            streams = self._client.xread(dict(after), count=count)
            if streams or self._world.now >= until:
                return list(streams or [])
            self._world.sleep(0.25)


class SimulatedDispatcher:
    """Implements `Dispatcher` with the messages of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def send(
        self, agent_id: str, iteration: int, epoch: int, phase: Phase, queue: str | None = None
    ) -> None:
        """Send the chain of phases that begins with *phase*."""
        usual = queues.ACT if phase == "act" else queues.LOOP
        following = FOLLOWS.get(phase)
        ids = (agent_id, iteration, epoch)
        then = following and Message(queues.full_name(queues.LOOP, agent_id), TASKS[following], ids)
        name = queues.full_name(queue or usual, agent_id)
        self._world.send(Message(name, TASKS[phase], ids, then))

    def fan_out(self, agent_id: str, iteration: int, batches: Sequence[BatchHint]) -> None:
        """Send a message for each batch."""
        for hint in batches:
            name = queues.full_name(hint.queue, agent_id)
            args = (agent_id, iteration, hint.batch, hint.attempt)
            self._world.send(Message(name, TASKS["observe"], args))

    def job(self, agent_id: str, name: str, attempt: int, queue: str | None) -> None:
        """Send the message of a job."""
        where = queues.full_name(queue or queues.ACT, agent_id)
        self._world.send(Message(where, JOB, (agent_id, name, attempt)))


class _Tasks:
    """A Celery app as `boyd_worker.worker.register` and beat need it: it keeps the functions."""

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., None]] = {}

    def task(self, function: Callable[..., None], name: str, shared: bool) -> None:
        self.functions[name] = function


def start_worker(world: World, consumes: Sequence[str], process: Process) -> None:
    """Run what `boyd worker` runs for those queues, with its consumers as tasks."""
    host = agent_host.AgentHost(_settings(process), "worker", consumes)
    host.prepare()
    app = _Tasks()
    worker.register(app, host.engines)
    work = maintenance.Maintenance(host)
    work.start()
    process.drain = partial(_drain, world, process, host, work)
    names = frozenset(
        queues.full_name(queue, agent_id) for agent_id in host.agents for queue in host.queues
    )
    for _ in range(CONCURRENCY):
        world.spawn(partial(_consume, world, app.functions, names))


def _consume(
    world: World, functions: dict[str, Callable[..., None]], names: frozenset[str]
) -> None:
    while (message := world.receive(names)) is not None:
        try:
            functions[message.name](*message.args)
        except Ignore:
            continue  # ends the chain
        except Exception as error:  # noqa: BLE001 - Celery logs it; here it is a finding
            world.problems.append(f"{message.name} {message.args} raised {error!r}")
            continue
        if message.then is not None:
            world.send(message.then)


def _drain(
    world: World, process: Process, host: agent_host.AgentHost, work: maintenance.Maintenance
) -> None:
    """End as `boyd worker` and `boyd beat` do on SIGTERM."""
    host.is_draining = True
    while not world.is_idle(process):
        world.sleep(0.1)
    work.stop()


def start_beat(world: World, process: Process) -> None:
    """Run what `boyd beat` runs, with a task for each entry of its schedule."""
    host = agent_host.AgentHost(_settings(process), "beat")
    host.prepare()
    work = maintenance.Maintenance(host)
    work.start()
    process.drain = partial(_drain, world, process, host, work)
    scheduler = beat.SlotScheduler(host.app, lazy=True)
    for entry in beat._schedule(host).values():
        world.spawn(partial(_tick, world, scheduler, entry))


def _tick(world: World, scheduler: beat.SlotScheduler, entry: ScheduleEntry) -> None:
    while True:
        due, wait = entry.schedule.is_due(None)
        if due:
            scheduler.apply_async(entry)  # then Celery asks again at once
        else:
            world.sleep(wait)


def _settings(process: Process) -> Settings:
    # One worker goes on with the next step itself; the other one sends the message of each.
    pool: Literal["threads", "prefork"] = "prefork" if process.name == "worker-2" else "threads"
    return _BASE.model_copy(update={"worker": WorkerSettings(host=process.name, pool=pool)})


@cache
def _celery() -> Celery:
    """Tells beats about schedules; reading its settings takes long, and nothing is sent by it."""
    return Celery(set_as_current=False)


_BASE = Settings(redis_url="redis://simulated", agents=("simulated",))


@contextmanager
def surround(world: World, agent: Agent) -> Iterator[None]:
    """Put a world around the shipped code."""
    # No task holds a lock when it gives up control.
    threads = SimpleNamespace(
        Thread=partial(_Thread, world),
        Event=partial(_Event, world),
        Lock=nullcontext,
        RLock=nullcontext,
    )
    product = random.Random(world.random.getrandbits(64))

    def call(function: Callable[[], Any], timeout: float) -> Any:
        return function()

    def call_all(calls: Sequence[time_limit.TimedCall], width: int = 64) -> Any:
        return time_limit.call_in_turn(calls)

    def now() -> float:
        return world.now

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=product.getrandbits(128), version=4)

    substitutes: list[tuple[Any, str, Any]] = [
        *_in_this_thread(time, time=now, monotonic=now, perf_counter=now, sleep=world.sleep),
        *_in_this_thread(random, uniform=product.uniform),
        *_in_this_thread(uuid, uuid4=uuid4),
        (time_limit, "call", call),
        (time_limit, "call_all", call_all),
        (leases, "threading", threads),
        (maintenance, "threading", threads),
        (work_follower, "threading", threads),
        (events, "open_tail", partial(_Tail, world)),
        (copier, "process_name", lambda: getcurrent().process.label),
        (agent_host, "os", SimpleNamespace(getpid=lambda: getcurrent().process.pid)),
        (agent_host, "machine", lambda: None),
        (agent_host, "keep_logging", lambda: None),
        (maintenance, "keep_logging", lambda: None),
        (maintenance, "end_process", lambda: None),
        (maintenance._Task, "hold_back_forks", lambda _: None),
        (agent_host, "load_agents", lambda *_: {agent.id: agent}),
        (agent_host, "connect", lambda *_: world.client()),
        (agent_host, "make_app", lambda *_: _celery()),
        (agent_host, "CeleryDispatcher", lambda *_: SimulatedDispatcher(world)),
    ]
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        for place, name, value in substitutes:
            stack.enter_context(patch.object(place, name, value))
        yield


def _in_this_thread(module: Any, **functions: Callable[..., Any]) -> Iterator[tuple[Any, str, Any]]:
    """Substitutes for functions of a module; threads that other tests have left keep the real ones.

    Yields:
        The module, the name of a function, and what takes its place.
    """
    thread = get_ident()

    def choose(real: Callable[..., Any], simulated: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: (simulated if get_ident() == thread else real)(*args)

    for name, simulated in functions.items():
        yield module, name, choose(getattr(module, name), simulated)
