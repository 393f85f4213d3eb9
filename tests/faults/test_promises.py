"""Promises of the reliability page that a storm does not single out."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from boyd.models import Actor, RunRequest
from faults.invariants import Invariants
from faults.load import Acknowledged, Load
from faults.storm import settle
from faults.world import AGENTS, World
from harness import wait_until
from measuring import Measure

pytestmark = [pytest.mark.real, pytest.mark.slow]

SOMEBODY = Actor(principal="somebody", person=True)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Everything, started."""
    new_world = World(tmp_path)
    new_world.start()
    yield new_world
    new_world.end()


def has_ended(world: World, agent: str, run_id: str) -> bool:
    run = world.deployment.agent(agent).runs.get(run_id)
    return run is not None and run.status in ("completed", "failed")


def progress(world: World) -> dict[str, int]:
    """Count the iterations that each agent has begun."""
    return {a: world.deployment.agent(a).loop_control.status().iteration for a in AGENTS}


def goes_on(world: World, timeout: float = 30.0) -> None:
    """Wait until every agent has completed an iteration that began from now on."""
    before = progress(world)

    def further() -> bool:
        iterations = [world.deployment.agent(a).history.get(before[a] + 1) for a in AGENTS]
        return all(result is not None and result.success for result in iterations)

    wait_until(further, timeout)


def test_acknowledged_requests_survive_the_kill_of_every_process(
    world: World, measure: Measure
) -> None:
    headers = world.deployment.key("client", "admin")
    base = f"{world.url('a0')}/api/v0/agents/storm0"
    body = {"title": "remember", "description": "this"}
    run = requests.post(f"{base}/runs", json=body, headers=headers, timeout=60).json()
    request_body = {"params": {"number": 7}}
    reply = requests.post(
        f"{base}/actions/storm:write", json=request_body, headers=headers, timeout=60
    ).json()
    for name in (*World.apis, *World.workers, *World.beats):
        world.signal(name, signal.SIGKILL)
    world.redis.signal(signal.SIGKILL)
    with measure.seconds(5, "everything killed and started: every agent has a new iteration after"):
        world.redis.start()
        world.heal()
        goes_on(world, 60)
    wait_until(lambda: has_ended(world, "storm0", run["id"]), 60)
    item = world.deployment.agent("storm0").approvals.get(reply["approvalId"])

    assert item is not None
    assert item.status == "pending"


def test_a_worker_that_starts_before_its_redis_waits_for_it(tmp_path: Path) -> None:
    new_world = World(tmp_path)
    new_world.redis.signal(signal.SIGKILL)
    new_world.launch("w0")
    wait_until(lambda: "waiting for it" in new_world.deployment.log("w0"), 30)
    new_world.redis.start()
    wait_until(lambda: new_world.deployment.store.fleet.workers(), 30)
    trigger = new_world.deployment.launcher("storm0").trigger("test")
    result = new_world.deployment.ended("storm0", trigger.iteration)
    new_world.end()

    assert result.success


@pytest.mark.long
def test_everything_goes_on_after_redis_was_frozen_for_long(world: World, measure: Measure) -> None:
    """Longer than every time limit of a connection, and without a restart of anything."""
    goes_on(world)
    pids = {name: process.pid for name, process in world.deployment.processes.items()}
    world.redis.signal(signal.SIGSTOP)
    time.sleep(30)  # the fault itself
    world.redis.signal(signal.SIGCONT)
    with measure.seconds(8, "Redis frozen for 30 s: every agent has a new iteration after"):
        goes_on(world, 60)

    assert pids == {name: p.pid for name, p in world.deployment.processes.items() if not p.poll()}


@pytest.mark.long
def test_a_rolling_restart_under_load_loses_and_doubles_nothing(
    world: World, measure: Measure
) -> None:
    load = Load(world, 5)
    load.start()
    codes = {}
    for name in (*World.workers, *World.beats, *World.apis):
        with measure.seconds(10, f"{name} has stopped under load after"):
            codes[name] = world.deployment.stop(name, 40)
        world.launch(name)
        goes_on(world)
    load.stop()
    settle(world)

    assert set(codes.values()) == {0}
    assert load.acknowledged.runs
    assert Invariants(world, load.acknowledged).check() == []


def test_a_stopping_worker_finishes_its_action(world: World) -> None:
    headers = world.deployment.key("client", "admin")
    others = [name for name in World.workers if name != "w0"]
    for name in others:
        world.deployment.stop(name, 40)
    url = f"{world.url('a0')}/api/v0/agents/storm0/actions/storm:slow?wait=30"
    responses: list[requests.Response] = []
    asking = threading.Thread(
        target=lambda: responses.append(
            requests.post(url, json={"params": {"number": 1}}, headers=headers, timeout=60)
        )
    )
    asking.start()
    wait_until(lambda: "slow:storm0:1" in world.deployment.effects())
    code = world.deployment.stop("w0", 40)
    asking.join()

    assert code == 0
    assert responses[0].json()["result"]["output"] == "done slowly"


@pytest.mark.long
def test_memory_and_keys_stay_flat(world: World) -> None:
    """An agent's history is capped, but here each iteration is kept, so runs would show growth."""
    store = world.deployment.agent("storm0")
    launcher = world.deployment.launcher("storm0", "continuous")
    retention = store.retention().patched({"runs_max_count": 5, "max_count": 5})
    for number in range(30):
        request = RunRequest(title=f"run {number}", description="x")
        run = launcher.submit_run(request, SOMEBODY).run
        store.runs.cancel(run.id, SOMEBODY, retention, "not wanted")
    runs_left = store.runs.page(100).runs
    settle(world)

    assert len([run for run in runs_left if run.status == "cancelled"]) <= 6
    assert Invariants(world, Acknowledged()).check() == []
