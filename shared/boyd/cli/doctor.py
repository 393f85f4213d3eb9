"""`boyd doctor`: what is wrong with a deployment, and what to do about it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import click
import redis

from boyd import queues
from boyd.agent import Agent, load_agent
from boyd.cli import output
from boyd.cli.options import agents_option, settings_options, with_agents, with_redis
from boyd.cli.status import server_now
from boyd.errors import BoydError, StoreError
from boyd.models import Model
from boyd.plugin import Action, Observer
from boyd.settings import Settings
from boyd.store import AgentEntry, Store, WorkerInfo, connect, masked, translated
from boyd.version import VERSION

Level = Literal["ok", "warn", "fail"]

OLDEST_REDIS = (6, 2)
#: Seconds by which clocks may differ before it is worth a word.
SKEW = 1.0
#: From which part of Redis' memory on it is worth a word, and from which it is urgent.
_FULL, _ALMOST_FULL = 0.8, 0.95
_NOT_ALLOWED = "not allowed to look"


class Check(Model):
    """One thing that was looked at; `advice` is what to do about it."""

    level: Level
    name: str
    found: str
    advice: str = ""


def _ok(name: str, found: str) -> Check:
    return Check(level="ok", name=name, found=found)


def _warn(name: str, found: str, advice: str = "") -> Check:
    return Check(level="warn", name=name, found=found, advice=advice)


def _fail(name: str, found: str, advice: str) -> Check:
    return Check(level="fail", name=name, found=found, advice=advice)


@click.command()
@agents_option
@output.output_option
@settings_options
def doctor(settings: Settings, agents: tuple[str, ...], form: str) -> None:
    """Find what is wrong, and what to do.

    It looks at Redis, workers, beats and queues.
    The agents that are named, here or in the settings, are looked into for the queues that their
    plugins need. The exit status is 1 when something has to be done.
    """
    checks = list(_checks(with_redis(with_agents(settings, agents))))
    if form == "json":
        output.print_json({"checks": checks})
    else:
        _show(checks)
    if any(check.level == "fail" for check in checks):
        raise click.exceptions.Exit(output.FAILED)


def _show(checks: list[Check]) -> None:
    if len(checks) == 1:  # without Redis there is nothing else to look at
        output.say(f"{checks[0].level}: {_text(checks[0])}")
        return
    rows = [[check.level, check.name, _text(check)] for check in checks]
    output.print_table(["", "check", "found"], rows)
    bad = sum(check.level != "ok" for check in checks)
    output.say()
    output.say(f"{output.count(bad, 'thing')} to look at." if bad else "All is well.")


def _text(check: Check) -> str:
    return f"{check.found.rstrip('.')}: {check.advice}" if check.advice else check.found


def _checks(settings: Settings) -> Iterator[Check]:
    assert settings.redis_url is not None
    store = Store(connect(settings.redis_url))
    try:
        yield _reachable(store, settings.redis_url)
        yield from _redis(store)
        yield from _broker(settings)
        yield from _deployment(store, settings)
    except StoreError as error:
        where = masked(settings.redis_url)
        advice = "start it, or name another with BOYD_REDIS_URL"
        yield _fail("redis", f"{where}: {error}", advice)


def _reachable(store: Store, url: str) -> Check:
    began = time.perf_counter()
    with translated():
        store.client.ping()
    took = (time.perf_counter() - began) * 1000
    return _ok("redis", f"{masked(url)} answers in {took:.1f} ms")


# Redis itself


def _redis(store: Store) -> Iterator[Check]:
    info = _info(store)
    if info is None:
        yield _warn("redis settings", _NOT_ALLOWED, "allow INFO for this user (ACL +info)")
    else:
        yield from (look(info) for look in _LOOKS)
    yield _clock(store)


def _info(store: Store) -> dict[str, Any] | None:
    """What Redis says of itself; None when its access rules forbid to ask."""
    try:
        found: dict[str, Any] = store.client.info()
    except redis.ResponseError:
        return None
    except redis.RedisError:
        with translated():
            raise
    return found


def _version(info: Mapping[str, Any]) -> Check:
    text = str(info.get("redis_version", ""))
    numbers = tuple(int(number) for number in re.findall(r"\d+", text)[:2])
    if numbers >= OLDEST_REDIS:
        return _ok("version", text)
    needed = ".".join(map(str, OLDEST_REDIS))
    return _fail("version", text or "unknown", f"Boyd needs {needed} or later")


def _role(info: Mapping[str, Any]) -> Check:
    role = str(info.get("role", "master"))
    if role == "master":
        return _ok("role", "master")
    return _fail("role", role, "name the master: a replica takes no writes")


def _persistence(info: Mapping[str, Any]) -> Check:
    name = "persistence"
    if info.get("aof_enabled") != 1:
        advice = "set appendonly yes, or a crash loses what happened since the last snapshot"
        return _warn(name, "no append-only file", advice)
    if info.get("aof_last_write_status", "ok") != "ok":
        return _fail(name, "the append-only file cannot be written", "look for a full disk")
    return _ok(name, "append-only file")


def _snapshot(info: Mapping[str, Any]) -> Check:
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        return _fail("snapshots", "the last one failed", "look at the disk: it may refuse writes")
    return _ok("snapshots", "no failure")


def _eviction(info: Mapping[str, Any]) -> Check:
    policy = info.get("maxmemory_policy")
    if policy is None:
        return _warn("eviction", _NOT_ALLOWED, "see that maxmemory-policy is noeviction")
    if policy == "noeviction":
        return _ok("eviction", policy)
    return _fail("eviction", policy, "set maxmemory-policy noeviction, or state gets lost")


def _memory(info: Mapping[str, Any]) -> Check:
    used, limit = float(info.get("used_memory", 0)), float(info.get("maxmemory", 0))
    if not limit:
        return _ok("memory", f"{_megabytes(used)} used, no limit")
    text = f"{_megabytes(used)} of {_megabytes(limit)} used"
    if used >= _ALMOST_FULL * limit:
        return _fail("memory", text, "raise maxmemory: when it is full, nothing goes on")
    if used >= _FULL * limit:
        return _warn("memory", text, "raise maxmemory, or keep less history")
    return _ok("memory", text)


_LOOKS: tuple[Callable[[Mapping[str, Any]], Check], ...] = (
    _version,
    _role,
    _persistence,
    _snapshot,
    _eviction,
    _memory,
)


def _megabytes(size: float) -> str:
    return f"{size / 1_000_000:.1f} MB"


def _clock(store: Store) -> Check:
    before = time.time()
    there = server_now(store).timestamp()
    skew = there - (before + time.time()) / 2
    if abs(skew) <= SKEW:
        return _ok("clock", "this host and Redis agree")
    where = "ahead of" if skew > 0 else "behind"
    text = f"Redis is {output.seconds(round(abs(skew), 1))} {where} this host"
    return _warn("clock", text, "synchronise the clocks (NTP)")


def _broker(settings: Settings) -> Iterator[Check]:
    """A broker of its own has to answer too."""
    url = settings.broker_url
    if not url or url == settings.redis_url:
        return
    try:
        with translated():
            connect(url).ping()
        yield _ok("broker", f"{masked(url)} answers")
    except BoydError as error:
        yield _fail("broker", f"{masked(url)}: {error}", "start it, or correct BOYD_BROKER_URL")


# Workers, beats and agents


@dataclass(frozen=True)
class _Deployment:
    agents: dict[str, AgentEntry]
    processes: list[WorkerInfo]

    def workers(self, agent_id: str | None = None) -> list[WorkerInfo]:
        """The live workers, or those of one agent."""
        return self._of("worker", agent_id)

    def beats(self, agent_id: str | None = None) -> list[WorkerInfo]:
        """The live beats, or those of one agent."""
        return self._of("beat", agent_id)

    def _of(self, role: str, agent_id: str | None) -> list[WorkerInfo]:
        found = [process for process in self.processes if process.role == role]
        return [p for p in found if agent_id is None or agent_id in p.agents]


def _deployment(store: Store, settings: Settings) -> Iterator[Check]:
    fleet = store.fleet
    seen = _Deployment(fleet.agents(), fleet.workers())
    yield _workers(seen)
    yield from _versions(seen)
    yield from _ailing(seen)
    if not seen.agents:
        yield _warn("agents", "none has been started yet", "boyd up, or boyd worker --agent FILE")
    for entry in seen.agents.values():
        yield from _agent(seen, entry)
    yield from _plugin_queues(seen, settings)
    yield from _held(store, seen)


def _workers(seen: _Deployment) -> Check:
    live = seen.workers()
    if not live:
        return _fail("workers", "none is alive", "boyd worker --agent FILE, or boyd up")
    hosts = sorted({worker.host for worker in live})
    return _ok("workers", f"{output.count(len(live), 'worker')} alive on {', '.join(hosts)}")


def _versions(seen: _Deployment) -> Iterator[Check]:
    versions = sorted({process.version for process in seen.processes})
    if len(versions) > 1:
        yield _warn("versions", f"{' and '.join(versions)} run together", "finish the upgrade")
    elif versions and versions[0] != VERSION:
        text = f"workers run {versions[0]}, this is {VERSION}"
        yield _warn("versions", text, "use the same version everywhere")
    elif versions:
        yield _ok("versions", versions[0])


def _ailing(seen: _Deployment) -> Iterator[Check]:
    for process in seen.processes:
        if process.problem:
            yield _warn(f"{process.role} {process.name}", process.problem, "look at its log")


def _agent(seen: _Deployment, entry: AgentEntry) -> Iterator[Check]:
    live = seen.workers(entry.id)
    name = f"agent {entry.id}"
    if not live:
        advice = "start one with `boyd worker --agent FILE`, unless the agent is retired"
        yield _warn(name, "no live worker runs it", advice)
        return
    served = {queue for worker in live for queue in worker.queues}
    missing = [queue for queue in (queues.LOOP, queues.OBSERVE, queues.ACT) if queue not in served]
    for queue in missing:
        yield _unserved(name, queue)
    if entry.mode == "continuous" and not seen.beats(entry.id):
        advice = "start one with `boyd beat --agent FILE`: nothing begins its iterations"
        yield _fail(name, "no live beat ticks for it", advice)
    elif not missing:
        yield _ok(name, f"its queues are served by {output.count(len(live), 'worker')}")


def _unserved(name: str, queue: str, whose: str = "") -> Check:
    found = f"no live worker consumes queue {queue!r}{whose}"
    return _fail(name, found, f"start one with `boyd worker --agent FILE -Q {queue}`")


def _plugin_queues(seen: _Deployment, settings: Settings) -> Iterator[Check]:
    """The queues that plugins name; only whoever has the agent file can know them."""
    for reference in settings.agents:
        try:
            agent = load_agent(reference)
        except BoydError as error:
            yield _fail("agent file", str(error), f"see `boyd check {reference}`")
            continue
        served = {queue for worker in seen.workers(agent.id) for queue in worker.queues}
        for queue, components in _named_queues(agent).items():
            if queue not in served:
                whose = f", which {', '.join(components)} needs"
                yield _unserved(f"agent {agent.id}", queue, whose)


def _named_queues(agent: Agent) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    parts: list[Observer | Action] = [*agent.host.observers.values(), *agent.host.actions.values()]
    for part in parts:
        if part.queue:
            found.setdefault(part.queue, []).append(part.id)
    return found


def _held(store: Store, seen: _Deployment) -> Iterator[Check]:
    """What somebody has stopped on purpose, so that nobody looks for it elsewhere."""
    everywhere = store.fleet.frozen()
    if everywhere is not None:
        yield _warn("freeze", f"acting is frozen everywhere: {everywhere}", "boyd unfreeze")
    for name in seen.agents:
        status = store.agent(name).iterations.status()
        if status.frozen is not None:
            yield _warn(f"agent {name}", f"frozen: {status.frozen}", f"boyd unfreeze {name}")
        if status.paused is not None:
            yield _warn(f"agent {name}", f"paused: {status.paused}", f"boyd resume {name}")
