"""The deployment: registered agents and live processes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import Field

from boyd.errors import StoreError, StoreUnavailable
from boyd.models import (
    ApprovalItem,
    Catalog,
    Delegation,
    JsonObject,
    Model,
    Timestamp,
    from_ms,
    responses,
    to_ms,
)
from boyd.models.loop import DeclaredAgent, Ticks
from boyd.settings.intake_settings import DeclaredIntake
from boyd.settings.schedules import Schedule
from boyd.store.freezes import Stop, scopes_concerning
from boyd.store.hashes import note_unreadable, readable, reading
from boyd.store.keys import AGENTS, DEPLOYMENT, WORKER_INFO, WORKERS, Keys
from boyd.store.server.connection import Client, pairs, replies_by_type, translate_errors
from boyd.store.server.scripts import Scripts, flat, milliseconds
from boyd.text import queues

Role = Literal["worker", "beat"]

#: Seconds of silence after which a worker counts as dead.
ALIVE = 6.0
#: Seconds for which a process caches the live workers.
_CACHE = 4.0


WorkerInfo = responses.WorkerInfo


@dataclass(frozen=True)
class Obstacle:
    """A cause that keeps an agent from starting iterations, and the command that helps."""

    text: str
    command: str


class Retention(Model):
    """The limits for pending items and for ended ones, with times in seconds.

    Without a `ttl`, items wait forever.
    """

    ttl: float | None = 3600.0
    max_age: float = 30 * 86400.0
    max_count: int = 500
    runs_max_age: float = 86400.0
    runs_max_count: int = 500
    iterations_max_age: float = 30 * 86400.0
    iterations_max_count: int = 500

    def of_items(self) -> list[int]:
        """The time in ms and the number of resolved items to keep."""
        return [milliseconds(self.max_age), self.max_count]

    def of_runs(self) -> list[int]:
        """The time in ms and the number of finished runs to keep."""
        return [milliseconds(self.runs_max_age), self.runs_max_count]

    def of_iterations(self) -> list[int]:
        """The time in ms and the number of iterations to keep."""
        return [milliseconds(self.iterations_max_age), self.iterations_max_count]

    def limits(self) -> dict[str, list[int]]:
        """All limits, as scripts take them."""
        return {
            "items": self.of_items(),
            "runs": self.of_runs(),
            "iterations": self.of_iterations(),
        }


class AgentEntry(DeclaredAgent):
    """An agent as its workers announce it.

    `schedule` has cron expressions in `timezone`. `model` names its model, if any. `approvals` are
    the settings of that name. `intakes` have only the names of secrets. `retired_at` is the time
    when it was taken out of service; a process that registers it, or beats for it, puts it back.
    """

    fingerprint: str
    model: str | None = None
    delegation: Delegation = Delegation()
    intakes: list[DeclaredIntake] = Field(default_factory=list)
    catalog: Catalog = Catalog()
    retention: Retention = Retention()
    approvals: JsonObject = Field(default_factory=dict)
    retired_at: Timestamp | None = None

    @property
    def needs_beat(self) -> bool:
        """True if its iterations start by the clock."""
        return self.mode == "continuous" or bool(self.schedule)

    def obstacle(self, processes: Iterable[WorkerInfo]) -> Obstacle | None:
        """The obstacle to the agent's work with these live *processes*, if there is one."""
        serving = [process for process in processes if self.id in process.agents]
        served = {
            name for process in serving if process.role == "worker" for name in process.queues
        }
        for name in (queues.LOOP, queues.OBSERVE):
            if name not in served:
                return Obstacle(f"no worker consumes the queue {name}", f"boyd worker -Q {name}")
        if self.needs_beat and not any(process.role == "beat" for process in serving):
            return Obstacle("no beat starts its iterations", "boyd beat")
        return None

    def compare_code(self, item: ApprovalItem) -> ApprovalItem:
        """The item with the code of now, if it waits and was proposed with another."""
        codes = {action.id: action.code for action in self.catalog.actions}
        return item.compare_code(codes.get(item.action_id, "no such action"))

    def next_start(self, now: datetime) -> datetime | None:
        """The time when beat starts the next iteration, if it starts any."""
        starts = []
        if self.mode == "continuous":
            ticks = Ticks.of(self.id, self.loop_interval, self.loop_offset)
            starts.append(from_ms(ticks.following(to_ms(now))))
        if self.schedule:
            starts.append(Schedule(tuple(self.schedule), self.timezone).following(now))
        return min(starts, default=None)


def in_service(agents: Mapping[str, AgentEntry]) -> list[str]:
    """The ids of the agents that are not retired, or of all if all are retired."""
    return [name for name, entry in agents.items() if entry.retired_at is None] or list(agents)


def read_entry(client: Client, agent_id: str) -> AgentEntry | None:
    """The entry of an agent; None when it is not registered."""
    with translate_errors(AGENTS):
        text = client.hget(AGENTS, agent_id)
    if not text:
        return None
    with reading(f"the entry of agent {agent_id}"):
        return AgentEntry.from_json(text)


class Fleet:
    """All workers and agents of one deployment."""

    def __init__(self, client: Client, scripts: Scripts) -> None:
        self._client = client
        self._all_scripts = scripts
        self._scripts = scripts.of(Keys(DEPLOYMENT))
        self._lock = threading.Lock()
        self._seen: tuple[float, list[WorkerInfo]] = (float("-inf"), [])
        #: The digest of the live processes before they were read.
        self._digest = ""
        #: The entries that this process registered, with the Redis server's time in ms.
        self._entries: dict[str, tuple[AgentEntry, int]] = {}
        #: The freeze marks as of the last heartbeat, by scope, and the run of their server.
        self._freezes: dict[str, str] = {}
        self._server = ""
        #: Names what the last heartbeat compared; empty: something has to be compared again.
        self.compared = ""
        #: The marks with which this process has compared the copy of each agent, by scope.
        self._compared: dict[str, dict[str, str]] = {}

    def beat(self, info: WorkerInfo) -> list[str]:
        """Record a heartbeat of this process; return the agents that it registered again.

        Redis may lose keys while processes run, so the entries that this process registered and
        the freezes that it has seen are written back when they are gone or outdated. A retired
        agent that this process runs is registered again, too. Freezes that have changed are brought
        to the copies of its agents, which the process that changed them may not have reached.
        """
        registered = [part for name in info.agents for part in self._registration(name)]
        lost, marks, server, compared = self._scripts.run(
            "record_heartbeat",
            name=info.name,
            info=info.to_json(),
            alive=milliseconds(ALIVE),
            known=registered,
            remembered=flat(self._freezes),
        )
        self._freezes = pairs(marks)
        if server != self._server:  # it may have lost marks that the copies have
            self._compared.clear()
            self._server = server
        for name in lost:
            self.register(self._entries[name][0])
        self.compared = compared if self._compare(info.agents) else ""
        return list(lost)

    def _compare(self, agents: Sequence[str]) -> bool:
        """Compare the copies of these agents whose marks have changed, and remember later ones.

        Returns:
            True: nothing is left to do.
        """
        due: list[tuple[str, dict[str, str]]] = []
        for name in agents:
            scopes = scopes_concerning(name)
            marks = {scope: self._freezes[scope] for scope in scopes if scope in self._freezes}
            if self._compared.get(name) != marks:
                due.append((name, marks))
        if not due:
            return True
        calls = [
            self._all_scripts.of(Keys(name)).call(
                "confirm_freezes", known=name in self._entries, marks=flat(marks)
            )
            for name, marks in due
        ]
        done = True
        for (name, marks), reply in zip(due, self._all_scripts.run_each(calls), strict=True):
            if isinstance(reply, StoreError):
                done = False  # with the next heartbeat
                continue
            _, later = reply
            done &= not later
            self._compared[name] = marks
            self._freezes |= pairs(later)
        return done

    def _registration(self, name: str) -> tuple[str, int] | tuple[()]:
        """An agent and the time when this process registered it; empty if it did not."""
        return (name, self._entries[name][1]) if name in self._entries else ()

    def leave(self, name: str) -> None:
        """Remove a worker that has stopped."""
        with translate_errors():
            pipe = self._client.pipeline()
            pipe.zrem(WORKERS, name)
            pipe.hdel(WORKER_INFO, name)
            pipe.execute()

    def workers(self) -> list[WorkerInfo]:
        """The processes with a heartbeat in the last `ALIVE` seconds."""
        now, beats = self._read()
        return [info for beat, info in beats if beat >= now - ALIVE]

    def of(self, agent_id: str) -> AgentFleet:
        """The workers as one agent sees them."""
        return AgentFleet(self, agent_id)

    def register(self, entry: AgentEntry) -> None:
        """Register an agent, replacing its previous entry."""
        self._entries[entry.id] = (entry, self._announce(entry))
        self._compared.pop(entry.id, None)

    def retire(self, entry: AgentEntry, at: datetime) -> None:
        """Take an agent out of service, until a process that runs it registers it again."""
        self._announce(entry.patched({"retired_at": at}))

    def _announce(self, entry: AgentEntry) -> int:
        """Store an entry in place of the previous one; return the time in ms."""
        retired = entry.retired_at is not None
        at = self._scripts.run(
            "register_agent", id=entry.id, entry=entry.to_json(), retired=retired
        )
        return int(at)

    def agents(self) -> dict[str, AgentEntry]:
        """All registered agents, by id."""
        with translate_errors(AGENTS):
            texts = self._client.hgetall(AGENTS)
        read = {
            name: readable(f"the entry of agent {name}", AgentEntry.from_json, text)
            for name, text in sorted(texts.items())
        }
        return {name: entry for name, entry in read.items() if entry is not None}

    def pauses(self, agent_ids: Sequence[str]) -> Mapping[str, Stop]:
        """The paused ones among these agents, in one round trip."""
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for name in agent_ids:
                pipe.hmget(Keys(name).loop, ["paused", "pausedAt"])
            rows = dict(zip(agent_ids, replies_by_type(pipe), strict=True))
        return {
            name: Stop(reason, from_ms(float(at)) if at else None)
            for name, (reason, at) in ((name, row or (None, None)) for name, row in rows.items())
            if reason is not None
        }

    def recent(self, fresh: bool = False) -> list[WorkerInfo]:
        """The live workers, as read a few seconds ago or, with *fresh*, now.

        A heartbeat's age is measured against the latest one, not the clock, because all of them
        are late after Redis was away. Each process is read only once: its queues and agents never
        change, but its last beat and problems are outdated here. While Redis does not answer, those
        that were alive before count.
        """
        with self._lock:
            read_at, workers = self._seen
        if not fresh and time.monotonic() - read_at <= _CACHE:
            return workers
        try:
            return self._reread()
        except StoreUnavailable:
            if not workers:
                raise
            return workers

    def refresh(self, live: str) -> None:
        """Keep the cache of `recent` fresh: read again if *live*, their digest, has changed.

        Raises:
            StoreUnavailable: Redis did not answer.
            StoreError: Redis answered with an error.
        """
        if live and live == self._digest:
            with self._lock:
                self._seen = (time.monotonic(), self._seen[1])
            return
        self._digest = ""
        self._reread()
        self._digest = live

    def _reread(self) -> list[WorkerInfo]:
        before = {worker.name: worker for worker in self._seen[1]}
        infos = self._infos(self._lively(), before)
        with self._lock:
            self._seen = (time.monotonic(), infos)
        return infos

    def _lively(self) -> set[str]:
        """The names of the live processes."""
        with translate_errors():
            beats = self._client.zrange(WORKERS, 0, -1, withscores=True)
        latest = max((beat for _, beat in beats), default=0.0)
        return {name for name, beat in beats if beat >= latest - ALIVE * 1000}

    def _infos(self, names: set[str], before: Mapping[str, WorkerInfo]) -> list[WorkerInfo]:
        """The processes called *names*; those in *before* are not read again."""
        new = sorted(names - before.keys())
        with translate_errors():
            texts = self._client.hmget(WORKER_INFO, new) if new else []
        # A process that has just left has no text.
        read = [_info(name, text) for name, text in zip(new, texts, strict=True) if text]
        unchanged = [worker for name, worker in before.items() if name in names]
        return [*unchanged, *(worker for worker in read if worker is not None)]

    def _read(self) -> tuple[float, list[tuple[float, WorkerInfo]]]:
        """The Redis server's time, and each process with the time of its last beat; in seconds."""
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.time()
            pipe.zrange(WORKERS, 0, -1, withscores=True)
            pipe.hgetall(WORKER_INFO)
            (seconds, micros), *listed = replies_by_type(pipe)
        for key, value in zip((WORKERS, WORKER_INFO), listed, strict=True):
            if value is None:
                note_unreadable(key, "it holds something else")
        beats, infos = listed[0] or [], listed[1] or {}
        read = [(beat, _info(name, infos[name])) for name, beat in beats if name in infos]
        workers = [
            (beat / 1000, info.patched({"last_beat": from_ms(beat)}))
            for beat, info in read
            if info is not None
        ]
        return seconds + micros / 1e6, workers


def _info(name: str, text: str) -> WorkerInfo | None:
    return readable(f"the entry of process {name}", WorkerInfo.from_json, text)


class AgentFleet:
    """The workers that run one agent."""

    def __init__(self, fleet: Fleet, agent_id: str) -> None:
        self._fleet = fleet
        self._agent_id = agent_id
        #: Who was there, and how many of them consume each queue.
        self._counted: tuple[list[WorkerInfo], Counter[str]] = ([], Counter())

    def serving(self, queue: str, fresh: bool = False) -> int:
        """The number of live workers that consume *queue* for this agent.

        Before it returns 0 it reads anew, because a worker may have just started; with *fresh* it
        always does, because one may have just died.
        """
        return (not fresh and self._count(queue, fresh=False)) or self._count(queue, fresh=True)

    def has_others(self, queue: str, fingerprint: str) -> bool:
        """Report whether a live worker of *queue* has the agent with another *fingerprint*."""
        there = [worker for worker in self._of(self._fleet.recent()) if queue in worker.queues]
        prints = [worker.fingerprints.get(self._agent_id, fingerprint) for worker in there]
        return any(each != fingerprint for each in prints)

    def hosts(self) -> list[str]:
        """The hosts, sorted, on which live workers consume the host's queue."""
        workers = self._of(self._fleet.recent())
        return sorted({w.host for w in workers if self.host_queue(w.host) in w.queues})

    def host_queue(self, host: str) -> str:
        """The queue that the workers on *host* consume."""
        return queues.of_host(host)

    def _count(self, queue: str, fresh: bool) -> int:
        """Count them all once: planning for a thousand hosts asks for each of them."""
        there = self._fleet.recent(fresh)
        counted_for, counts = self._counted
        if counted_for is not there:
            counts = Counter(name for worker in self._of(there) for name in set(worker.queues))
            self._counted = there, counts
        return counts[queue]

    def _of(self, workers: list[WorkerInfo]) -> list[WorkerInfo]:
        return [worker for worker in workers if self._agent_id in worker.agents]
