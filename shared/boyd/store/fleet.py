"""The deployment: which agents are registered and which processes live."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from boyd import queues
from boyd.models import Catalog, Mode, Model, ObserverHealth, Timestamp, from_ms, responses
from boyd.store.connection import Client, translated
from boyd.store.keys import AGENTS, DEPLOYMENT, WORKER_INFO, WORKERS, Keys
from boyd.store.scripts import Scripts, flat
from boyd.store.timing import Retention

Role = Literal["worker", "beat"]

#: Seconds of silence after which a worker counts as dead.
ALIVE = 6.0
#: Seconds a process may use what it last read of the workers; its own beat reads more often.
_CACHE = 4.0


WorkerInfo = responses.WorkerInfo


class AgentEntry(Model):
    """An agent as the workers that run it announce it.

    `model` names its model, if it has one. `retired_at` is when somebody took it out of service;
    a process that registers it puts it back, as does the heartbeat of one that runs it.
    """

    id: str
    name: str
    mode: Mode
    loop_interval: float
    plugins: list[str]
    fingerprint: str
    model: str | None = None
    catalog: Catalog = Catalog()
    retention: Retention = Retention()
    retired_at: Timestamp | None = None


def in_service(agents: Mapping[str, AgentEntry]) -> list[str]:
    """The agents that are not retired, by id; all, if every one of them is."""
    return [name for name, entry in agents.items() if entry.retired_at is None] or list(agents)


def read_entry(client: Client, agent_id: str) -> AgentEntry | None:
    """One agent as it was announced."""
    with translated():
        text = client.hget(AGENTS, agent_id)
    return AgentEntry.from_json(text) if text else None


class Fleet:
    """All workers and agents of one deployment."""

    def __init__(self, client: Client, scripts: Scripts) -> None:
        self._client = client
        self._scripts = scripts.of(Keys(DEPLOYMENT))
        self._lock = threading.Lock()
        self._seen: tuple[float, list[WorkerInfo]] = (float("-inf"), [])
        #: What this process has registered, and when, by the Redis server's clock in ms.
        self._entries: dict[str, tuple[AgentEntry, int]] = {}
        #: The freeze marks as of the last heartbeat, by scope.
        self._freezes: dict[str, str] = {}

    def beat(self, info: WorkerInfo) -> list[str]:
        """Record a heartbeat of this process; the agents that had to be registered again.

        Redis may lose any of its keys while processes run: what this process has registered, and
        the freezes that it has seen, are written back when they are gone or older (P16).
        An agent that was retired although this process runs it is registered again, too.
        """
        registered = [part for name in info.agents for part in self._registered(name)]
        lost, kept = self._scripts.run(
            "record_heartbeat",
            name=info.name,
            info=info.to_json(),
            known=registered,
            remembered=flat(self._freezes),
        )
        self._freezes = dict(zip(kept[::2], kept[1::2], strict=True))
        for name in lost:
            self.register(self._entries[name][0])
        return list(lost)

    def _registered(self, name: str) -> tuple[str, int] | tuple[()]:
        """An agent and when this process registered it; nothing if it has not."""
        return (name, self._entries[name][1]) if name in self._entries else ()

    def leave(self, name: str) -> None:
        """Say that a worker has stopped."""
        with translated():
            pipe = self._client.pipeline()
            pipe.zrem(WORKERS, name)
            pipe.hdel(WORKER_INFO, name)
            pipe.execute()

    def workers(self) -> list[WorkerInfo]:
        """The processes that have beaten within the last seconds."""
        now, found = self._read()
        return [info for beat, info in found if beat >= now - ALIVE]

    def of(self, agent_id: str) -> AgentFleet:
        """The workers as one agent sees them."""
        return AgentFleet(self, agent_id)

    def register(self, entry: AgentEntry) -> None:
        """Register an agent, in place of what was registered of it before."""
        self._entries[entry.id] = (entry, self._announce(entry))

    def retire(self, entry: AgentEntry, at: datetime) -> None:
        """Take an agent out of service, until a process that runs it registers it again."""
        self._announce(entry.patched({"retired_at": at}))

    def _announce(self, entry: AgentEntry) -> int:
        """Store an entry in place of the one before it; when, in ms."""
        retired = entry.retired_at is not None
        at = self._scripts.run(
            "register_agent", id=entry.id, entry=entry.to_json(), retired=retired
        )
        return int(at)

    def agents(self) -> dict[str, AgentEntry]:
        """All agents that are registered, by id."""
        with translated():
            found = self._client.hgetall(AGENTS)
        return {name: AgentEntry.from_json(text) for name, text in sorted(found.items())}

    def recent(self, fresh: bool = False) -> list[WorkerInfo]:
        """The workers that live, as read a few seconds ago or, with *fresh*, now.

        Judged against the latest beat instead of the clock: after Redis was away all are late, and
        whoever asks is alive himself. What a process announces is read once: its queues and agents
        stay; when it last beat and what ails it are not told here.
        """
        with self._lock:
            read_at, workers = self._seen
        if not fresh and time.monotonic() - read_at <= _CACHE:
            return workers
        known = self._known(self._lively(), {worker.name: worker for worker in workers})
        with self._lock:
            self._seen = (time.monotonic(), known)
        return known

    def _lively(self) -> set[str]:
        """The names of the processes that live."""
        with translated():
            beats = self._client.zrange(WORKERS, 0, -1, withscores=True)
        latest = max((beat for _, beat in beats), default=0.0)
        return {name for name, beat in beats if beat >= latest - ALIVE * 1000}

    def _known(self, names: set[str], before: Mapping[str, WorkerInfo]) -> list[WorkerInfo]:
        """What those processes are; of those *before*, nothing is read again."""
        new = sorted(names - before.keys())
        with translated():
            texts = self._client.hmget(WORKER_INFO, new) if new else []
        # One that says goodbye meanwhile has none.
        read = [WorkerInfo.from_json(text) for text in texts if text]
        return [worker for name, worker in before.items() if name in names] + read

    def _read(self) -> tuple[float, list[tuple[float, WorkerInfo]]]:
        """The Redis server's time, and when each process last beat; in seconds."""
        with translated():
            pipe = self._client.pipeline(transaction=False)
            pipe.time()
            pipe.zrange(WORKERS, 0, -1, withscores=True)
            pipe.hgetall(WORKER_INFO)
            (seconds, micros), beats, infos = pipe.execute()
        found = [(beat / 1000, _info(infos[name], beat)) for name, beat in beats if name in infos]
        return seconds + micros / 1e6, found


def _info(text: str, beat: float) -> WorkerInfo:
    return WorkerInfo.from_json(text).patched({"last_beat": from_ms(beat)})


class AgentFleet:
    """The workers that run one agent; what planning asks (`loop.planning.Fleet`)."""

    def __init__(self, fleet: Fleet, agent_id: str) -> None:
        self._fleet = fleet
        self._agent_id = agent_id

    def serving(self, queue: str, fresh: bool = False) -> int:
        """How many live workers consume *queue* for this agent.

        Before it says none it looks again: one may have started just now. With *fresh* it does so
        in any case: one may have died just now.
        """
        return (not fresh and self._count(queue, fresh=False)) or self._count(queue, fresh=True)

    def hosts(self) -> list[str]:
        """The hosts on which live workers consume their host's queue, sorted."""
        workers = self._workers()
        return sorted({w.host for w in workers if self.host_queue(w.host) in w.queues})

    def host_queue(self, host: str) -> str:
        """The queue that the workers on *host* consume."""
        return queues.of_host(host)

    def _count(self, queue: str, fresh: bool) -> int:
        return sum(queue in worker.queues for worker in self._workers(fresh))

    def _workers(self, fresh: bool = False) -> list[WorkerInfo]:
        return [w for w in self._fleet.recent(fresh) if self._agent_id in w.agents]


class Observers:
    """The observers of one agent, as its iterations have left them."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    def last_runs(self) -> tuple[dict[str, float], dict[str, ObserverHealth]]:
        """When each observer last ran, in seconds since the epoch, and how it has been doing."""
        with translated():
            pipe = self._client.pipeline(transaction=False)
            pipe.hgetall(self._keys.observers_ran)
            pipe.hgetall(self._keys.observers_health)
            ran, health = pipe.execute()
        return {name: float(ms) / 1000 for name, ms in ran.items()}, _read(health)

    def health(self, observers: Sequence[str]) -> dict[str, ObserverHealth]:
        """How those *observers* have been doing (L15)."""
        if not observers:
            return {}
        with translated():
            texts = self._client.hmget(self._keys.observers_health, list(observers))
        found = zip(observers, texts, strict=True)
        return _read({name: text for name, text in found if text})


def _read(texts: Mapping[str, str]) -> dict[str, ObserverHealth]:
    return {name: ObserverHealth.from_json(text) for name, text in texts.items()}
