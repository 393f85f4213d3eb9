"""The work of each master of a Redis Cluster, compared with a single Redis.

Each has a replica, and messages are elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import redis

from benchmarks.iterations import Boyd, workers
from benchmarks.report import Report
from clusters import RedisCluster
from harness import BROKERS, Deployment, wait_until
from redis_kit import RedisServer

#: Agents on each master, and iterations of each agent.
EACH, ROUNDS = 4, 40
#: The share of the work of Redis alone that a master may do.
MOST = 0.4
#: Those from which agents are chosen so that each master has as many.
AGENTS = [f"crowd10acts{number}" for number in range(20)]


@dataclass(frozen=True)
class Work:
    """Work of a server: commands, with those in scripts, and milliseconds of its time."""

    commands: float
    cpu: float

    @classmethod
    def of(cls, port: int) -> Work:
        """Read the work of a server since its start."""
        with redis.Redis(port=port) as client:
            info = client.info("stats", "cpu")
        seconds = info["used_cpu_user"] + info["used_cpu_sys"]
        return cls(info["total_commands_processed"], 1000 * seconds)


def measure(report: Report, url: str, folder: Path) -> None:
    """The same iterations on three masters and on one Redis."""
    with RedisCluster(folder) as cluster:
        masters = cluster.masters()
        agents = spread(cluster)
        with Deployment(cluster.url, folder) as deployment:
            several = measure_work(deployment, agents, masters)
        with alone(folder) as state:
            BROKERS[state] = cluster.broker_url
            with Deployment(state, folder) as deployment:
                [single] = measure_work(deployment, agents, [port_of(state)])
    for number, master in enumerate(several, 1):
        report.tell(f"master {number} of 3, an iteration", master.commands, "commands")
        report.tell(f"master {number} of 3, an iteration's time", master.cpu, "ms")
    report.tell("Redis alone, an iteration", single.commands, "commands")
    report.tell("Redis alone, an iteration's time", single.cpu, "ms")
    commands = max(master.commands for master in several) / single.commands
    report.most("the busiest master to Redis alone, commands", commands, "x", MOST)
    cpu = max(master.cpu for master in several) / single.cpu
    report.most("the busiest master to Redis alone, processor time", cpu, "x", MOST)


@contextmanager
def alone(folder: Path) -> Iterator[str]:
    """A Redis with a replica; its URL."""
    copies = folder / "replica"
    copies.mkdir()
    with RedisServer(folder, "--appendonly", "yes") as master:
        place = ("--replicaof", "127.0.0.1", str(master.port))
        with (
            RedisServer(copies, "--appendonly", "yes", *place) as replica,
            redis.Redis.from_url(replica.url) as client,
        ):
            wait_until(lambda: client.info("replication")["master_link_status"] == "up")
            yield master.url


def port_of(url: str) -> int:
    """The port in a URL."""
    return urlsplit(url).port or 0


def spread(cluster: RedisCluster) -> list[str]:
    """As many agents on each master."""
    agents_of: dict[int, list[str]] = {port: [] for port in cluster.masters()}
    for agent in AGENTS:
        agents_of[cluster.master_of(agent)].append(agent)
    assert all(len(there) >= EACH for there in agents_of.values()), agents_of
    return [agent for there in agents_of.values() for agent in there[:EACH]]


def measure_work(deployment: Deployment, agents: Sequence[str], ports: Sequence[int]) -> list[Work]:
    """The work of each server for an iteration."""
    workers(deployment, "w1", "w2", agents=agents)
    each = [Boyd(deployment, agent).once for agent in agents]
    for once in each:
        once()
    with ThreadPoolExecutor(len(each)) as pool:
        before = [Work.of(port) for port in ports]
        list(pool.map(lambda once: [once() for _ in range(ROUNDS)], each))
        after = [Work.of(port) for port in ports]
    total = len(agents) * ROUNDS
    return [
        Work((now.commands - then.commands) / total, (now.cpu - then.cpu) / total)
        for then, now in zip(before, after, strict=True)
    ]
