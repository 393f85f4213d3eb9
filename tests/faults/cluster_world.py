"""A world on a Redis Cluster, and what can be done to its servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from redis.crc import key_slot

from boyd.store.keys import Keys
from clusters import RedisCluster
from faults.injector import Injector
from faults.world import World
from harness import wait_until

#: On the master of the deployment's data, and on each of the others.
HOME, FAR, FURTHER = "storm2", "storm3", "storm0"
#: Each fault and how often it comes, compared to the others.
FAULTS = {
    "kill worker": 5,
    "end worker": 2,
    "stop worker": 4,
    "kill beat": 2,
    "stop beat": 2,
    "kill api": 3,
    "stop api": 1,
    "kill master": 3,
    "stop master": 3,
    "kill replica": 1,
    "change master": 2,
    "move slot": 4,
    "kill broker": 2,
    "drop connections": 2,
}
#: Seconds until servers are one cluster again.
WHOLE = 60.0


class ClusterWorld(World):
    """Three workers, two beats and two API processes; each of three masters has an agent."""

    agents = (HOME, FAR, FURTHER)

    def __init__(self, folder: Path, cluster: RedisCluster) -> None:
        super().__init__(folder, cluster)
        self.cluster = cluster


@contextmanager
def cluster_world(folder: Path) -> Iterator[ClusterWorld]:
    """A world that is not started yet; everything is taken away at the end."""
    with ExitStack() as things:
        cluster = things.enter_context(RedisCluster(folder, fsync="always"))
        world = ClusterWorld(folder, cluster)
        things.callback(world.end)
        yield world


class ClusterInjector(Injector):
    """Hurts processes and servers; never two servers at once, as one may be without a replica."""

    faults_of = FAULTS

    def __init__(self, world: ClusterWorld, seed: int, pause: float = 2.0) -> None:
        super().__init__(world, seed, pause)
        self._cluster = world.cluster

    def _inject_other(self, kind: str, seconds: float) -> str:
        wait_until(self._cluster.whole, WHOLE)
        agent = self._dice.choice(self._world.agents)
        master = self._cluster.master_of(agent)
        if kind == "kill master":
            self._cluster.kill_copied(master)
            time.sleep(seconds)
            self._cluster.start(master)
        elif kind == "stop master":
            self._cluster.pause(master)
            time.sleep(seconds)
            self._cluster.resume(master)
        elif kind == "kill replica":
            replica = self._dice.choice(sorted(set(self._cluster.servers) - {master}))
            self._cluster.kill(replica)
            time.sleep(seconds / 4)
            self._cluster.start(replica)
        elif kind == "change master":
            self._cluster.hand_over(master)
        elif kind == "move slot":
            self._move(agent, master, seconds)
        elif kind == "kill broker":
            self._cluster.kill(self._cluster.broker)
            time.sleep(seconds / 4)
            self._cluster.start(self._cluster.broker)
        else:
            for port in (*self._cluster.masters(), self._cluster.broker):
                with self._cluster.ask(port) as client:
                    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        return agent

    def _move(self, agent: str, master: int, seconds: float) -> None:
        others = [port for port in self._cluster.masters() if port != master]
        slot = key_slot(Keys(agent).loop.encode())
        with self._cluster.moving(slot, self._dice.choice(others)):
            time.sleep(seconds)
