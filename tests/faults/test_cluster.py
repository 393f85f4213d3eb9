"""State on a Redis Cluster: masters die, hang and hand over slots, and all goes on by itself."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from redis.crc import key_slot

from boyd.errors import StoreError
from boyd.store.keys import Keys
from clusters import RedisCluster
from faults.cluster_world import FURTHER, HOME, ClusterWorld
from faults.invariants import Invariants
from faults.load import Load
from faults.storm import settle
from harness import wait_until
from measuring import Measure

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.long]

#: Seconds from the loss of a master until its agents have completed a new iteration.
RECOVERED = 10.0


class Spread(ClusterWorld):
    """Two workers, a beat and two API processes."""

    workers = ("w0", "w1")
    beats = ("b0",)
    apis = ("a0", "a1")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """Three masters and a replica of each."""
    with RedisCluster(tmp_path, fsync="always") as masters:
        assert len({masters.master_of(agent) for agent in Spread.agents}) == len(masters.masters())
        assert masters.master_of(HOME) == masters.master_of("*")
        yield masters


@pytest.fixture
def world(cluster: RedisCluster, tmp_path: Path) -> Iterator[Spread]:
    """A deployment on the cluster."""
    spread = Spread(tmp_path, cluster)
    spread.start()
    yield spread
    spread.end()


@pytest.fixture
def load(world: Spread) -> Load:
    """Clients of all agents, who have been answered."""
    new_load = Load(world, seed=1)
    new_load.start()
    wait_until(lambda: len(new_load.acknowledged.answers) > 1, 30)
    return new_load


def has_completed(world: Spread, agent: str, since: float) -> bool:
    """Check for a successful iteration that began after that time."""
    try:
        results = world.deployment.agent(agent).history.results(5)
    except StoreError:
        return False
    return any(result.success and result.started_at.timestamp() > since for result in results)


def recovery(world: Spread, agent: str) -> float:
    """Seconds until the agent has completed an iteration that began after this call."""
    since = time.time()
    wait_until(lambda: has_completed(world, agent, since), RECOVERED)
    return time.time() - since


def gap(world: Spread, agent: str, since: float) -> float:
    """The longest time between the beginnings of two iterations that follow each other."""
    results = world.deployment.agent(agent).history.results(10**6)
    began = sorted(result.started_at.timestamp() for result in results)
    return max(b - a for a, b in pairwise(at for at in began if at > since))


def all_is_well(world: Spread, load: Load) -> None:
    """Nothing was lost or done twice, and no process has ended."""
    load.stop()
    settle(world)
    assert Invariants(world, load.acknowledged).check() == []
    assert all(world.alive(name) for name in (*world.workers, *world.beats, *world.apis))


def goes_on(world: Spread, agent: str, name: str, measure: Measure) -> None:
    """The agent goes on soon, and the others went on all the time."""
    began = time.time() - 1
    took = recovery(world, agent)
    others = {other: gap(world, other, began) for other in world.agents if other != agent}
    measure.most(15, f"{name}: its agents go on after", took, agent)
    measure.most(15, f"{name}: the longest pause of the others", max(others.values()), agent)


def test_a_cluster_is_whole_when_every_slot_is_served(cluster: RedisCluster) -> None:
    slot = key_slot(Keys(FURTHER).loop.encode())
    with cluster.ask(cluster.master_of(FURTHER)) as master:
        master.cluster("DELSLOTS", slot)
        assert not cluster.whole()
        master.cluster("ADDSLOTS", slot)
    wait_until(cluster.whole, 20)


@pytest.mark.parametrize("agent", [FURTHER, HOME])
def test_a_killed_master_costs_its_agents_seconds_and_the_others_nothing(
    cluster: RedisCluster, world: Spread, load: Load, agent: str, measure: Measure
) -> None:
    killed = cluster.master_of(agent)
    cluster.kill_copied(killed)
    goes_on(world, agent, "a master killed", measure)
    cluster.start(killed)
    wait_until(cluster.whole, 60)
    all_is_well(world, load)


@pytest.mark.parametrize("agent", [FURTHER, HOME])
def test_a_master_that_hangs_is_replaced_and_changes_nothing_when_it_goes_on(
    cluster: RedisCluster, world: Spread, load: Load, agent: str, measure: Measure
) -> None:
    hung = cluster.master_of(agent)
    cluster.pause(hung)
    goes_on(world, agent, "a master suspended", measure)
    wait_until(lambda: cluster.master_of(agent) != hung, 20)
    cluster.resume(hung)
    wait_until(cluster.whole, 60)
    all_is_well(world, load)


def test_a_freeze_holds_while_masters_fail(cluster: RedisCluster, world: Spread) -> None:
    freezes = world.deployment.store.freezes
    wait_until(lambda: all(has_completed(world, agent, 0) for agent in world.agents), 30)
    assert freezes.freeze("incident") == []
    frozen = acts(world)
    for agent in (HOME, FURTHER):
        killed = cluster.master_of(agent)
        cluster.kill_copied(killed)
        recovery(world, agent)
        cluster.start(killed)
        wait_until(cluster.whole, 60)
    assert acts(world) - frozen <= Counter(dict.fromkeys(world.agents, 1))  # claimed before
    assert freezes.everywhere() == "incident"
    freezes.lift()
    wait_until(lambda: all((acts(world) - frozen)[agent] > 1 for agent in world.agents), 30)


def test_a_freeze_names_the_agents_that_it_does_not_reach_and_is_brought_to_them(
    cluster: RedisCluster, world: Spread
) -> None:
    wait_until(lambda: all(has_completed(world, agent, 0) for agent in world.agents), 30)
    hung = cluster.master_of(FURTHER)
    cluster.pause(hung)
    assert world.deployment.store.freezes.freeze("incident") == [FURTHER]
    cluster.resume(hung)
    recovery(world, FURTHER)
    frozen = acts(world)
    recovery(world, FURTHER)
    assert acts(world) == frozen
    assert world.deployment.agent(FURTHER).history.results(1)[0].action_results[0].prevented


def acts(world: Spread) -> Counter[str]:
    """Count the actions of each agent."""
    lines = world.deployment.effects()
    return Counter(line.split(":")[1] for line in lines if line.startswith("loop:"))


@pytest.mark.parametrize("agent", [FURTHER, HOME])
def test_nothing_is_lost_or_done_twice_while_slots_move(
    cluster: RedisCluster, world: Spread, load: Load, agent: str
) -> None:
    slot = key_slot(Keys(agent).loop.encode())
    for _ in range(3):
        others = [port for port in cluster.masters() if port != cluster.master_of(agent)]
        with cluster.moving(slot, others[0]):
            time.sleep(2)  # longer than any command waits
        assert cluster.master_of(agent) == others[0]
        recovery(world, agent)
    all_is_well(world, load)
