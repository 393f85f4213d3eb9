"""Redis loses keys while processes run; all is known again, and a freeze never lies."""

from __future__ import annotations

import re
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import redis
import requests

from boyd.store.keys import AGENTS, FREEZES, REGISTERED
from faults.world import RedisProcess
from harness import Deployment, wait_until
from measuring import Measure

pytestmark = [pytest.mark.real, pytest.mark.slow]

#: Seconds within which all is known again: a heartbeat and a busy machine.
KNOWN_AGAIN = 20.0
#: What a key's name ends with where there is one for each thing of a kind.
_ONE_OF_MANY = re.compile(r"(iteration|execution|run|asked|bucket|answer|turn|log|budget):.+$")


@pytest.fixture
def acting(deployment: Deployment) -> Deployment:
    """An agent that acts five times a second."""
    deployment.environment["BOYD_TIMING__HEARTBEAT_INTERVAL"] = "0.5"
    deployment.worker("w", "agents.traced:ticking")
    deployment.beat("b", "agents.traced:ticking")
    acts_again(deployment)
    return deployment


def acts(deployment: Deployment) -> int:
    """Count the started actions."""
    return sum(line.startswith("act:") for line in deployment.effects())


def acts_again(deployment: Deployment) -> None:
    """Wait until an action has started that had not when this was called."""
    before = acts(deployment)
    wait_until(lambda: acts(deployment) > before, 30)


def observes_again(deployment: Deployment) -> None:
    """Wait until two iterations have ended that had not begun when this was called."""

    def completions() -> int:
        return sum(line.startswith("complete:") for line in deployment.effects())

    before = completions()
    wait_until(lambda: completions() > before + 2, 30)


def is_known(deployment: Deployment) -> bool:
    return "ticking" in deployment.store.fleet.agents()


def families(deployment: Deployment) -> dict[str, list[str]]:
    """All keys of Boyd, by what kind of thing they hold."""
    keys_by_family: dict[str, list[str]] = {}
    for key in sorted(deployment.store.client.scan_iter("boyd:*")):
        keys_by_family.setdefault(_ONE_OF_MANY.sub(r"\1", key), []).append(key)
    return keys_by_family


def freeze_holds(deployment: Deployment) -> None:
    """Freeze everywhere: no action starts afterwards, though the agent goes on."""
    deployment.store.freezes.freeze("test")
    running = acts(deployment)
    observes_again(deployment)

    # One may have been claimed before the freeze and have left its line since.
    assert acts(deployment) <= running + 1
    frozen = acts(deployment)
    observes_again(deployment)
    assert acts(deployment) == frozen
    deployment.store.freezes.lift()
    acts_again(deployment)


def test_an_agent_recovers_from_any_lost_keys_and_its_freeze_holds(
    acting: Deployment, measure: Measure
) -> None:
    for family, keys in families(acting).items():
        acting.store.client.delete(*keys)
        wait_until(lambda: is_known(acting), KNOWN_AGAIN)
        acts_again(acting)
        print(f"goes on without {family}")
    with measure.seconds(16, "all data lost, a heartbeat each 0.5 s: the agent acts again after"):
        acting.store.client.flushall()
        wait_until(lambda: is_known(acting), KNOWN_AGAIN)
        acts_again(acting)
    freeze_holds(acting)


def test_freeze_all_holds_at_once_when_the_registry_of_agents_is_lost(
    acting: Deployment,
) -> None:
    acting.store.client.delete(AGENTS, REGISTERED)
    freeze_holds(acting)


def everybody_beats(deployment: Deployment) -> None:
    """Wait until each process has sent two heartbeats, so that one began after this call."""
    for _ in range(2):
        before = last_beats(deployment)
        wait_until(partial(_all_have_beaten, deployment, before), 10)


def last_beats(deployment: Deployment) -> dict[str, object]:
    """When each process has sent its last heartbeat."""
    return {worker.name: worker.last_beat for worker in deployment.store.fleet.workers()}


def _all_have_beaten(deployment: Deployment, before: dict[str, object]) -> bool:
    return not before.items() & last_beats(deployment).items()


def test_a_freeze_outlives_the_loss_of_all_data(acting: Deployment) -> None:
    acting.store.freezes.freeze("the database moves")
    observes_again(acting)  # a heartbeat has seen it
    wait_until(lambda: acting.store.freezes.everywhere(), 10)
    frozen = acts(acting)
    everybody_beats(acting)
    acting.store.client.flushall()
    wait_until(lambda: is_known(acting), KNOWN_AGAIN)
    observes_again(acting)

    assert acting.store.freezes.everywhere() == "the database moves"
    assert acts(acting) == frozen
    acting.store.freezes.lift()
    everybody_beats(acting)  # until then, whoever knows the freeze would restore it
    acts_again(acting)
    acting.store.client.delete(FREEZES)
    acts_again(acting)


def test_the_api_knows_an_agent_again_whose_registration_was_lost(acting: Deployment) -> None:
    url = f"{acting.api('api')}/api/v0/agents/ticking"
    acting.store.client.flushall()
    wait_until(lambda: is_known(acting), KNOWN_AGAIN)
    headers = acting.key("ann", "admin")
    wait_until(lambda: requests.get(f"{url}/state", headers=headers, timeout=60).ok, KNOWN_AGAIN)
    frozen = requests.post(f"{url}/freeze", json={}, headers=headers, timeout=60).json()

    assert frozen["success"]
    assert frozen["frozen"] == acting.store.freezes.of("ticking")
    observes_again(acting)
    before = acts(acting)
    observes_again(acting)
    assert acts(acting) == before


@pytest.mark.long
def test_after_an_emptied_replica_was_promoted_no_id_is_used_again_and_a_freeze_holds(
    deployment: Deployment, tmp_path: Path
) -> None:
    """As when a replica is promoted in the middle of a full resync: it is empty then."""
    deployment.environment["BOYD_TIMING__HEARTBEAT_INTERVAL"] = "0.5"
    deployment.worker("w", "agents.storm:storm0")
    deployment.beat("b", "agents.storm:storm0")
    history = deployment.agent("storm0").history
    before = wait_until(lambda: history.get(3), 30)
    empty = RedisProcess(tmp_path)
    with redis.Redis.from_url(deployment.redis_url) as server:
        server.execute_command("REPLICAOF", "127.0.0.1", empty.port)
        wait_until(lambda: server.dbsize() == 0, 30)
        server.execute_command("REPLICAOF", "NO", "ONE")
    empty.signal(signal.SIGKILL)
    after = wait_until(lambda: history.get(3), 30)
    deployment.store.freezes.freeze("test")
    frozen = deployment.agent("storm0").loop_control.status().iteration
    wait_until(lambda: history.get(frozen + 2), 30)
    lines = Counter(deployment.effects())

    assert (before.iteration, after.iteration) == (3, 3)
    assert before.id != after.id
    assert {f"loop:{before.id}", f"loop:{after.id}"} <= lines.keys()
    assert max(lines.values()) == 1
    for number in (frozen + 1, frozen + 2):
        result = history.get(number)
        assert result is not None
        assert "Actions are frozen" in (result.action_results[0].error or "")
        assert f"loop:{result.id}" not in lines
