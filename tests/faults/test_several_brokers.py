"""Agents whose messages are spread over several brokers, which die and come back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from boyd.text import queues
from faults.world import RedisProcess
from harness import Deployment, wait_until

pytestmark = [pytest.mark.real, pytest.mark.long]

NAMES = ("ant", "bee", "cat", "dog", "eel", "fox")
AGENT = """
id = "{name}"
mode = "manual"
[[plugins]]
use = "example"
"""


@pytest.fixture(name="brokers")
def _brokers(tmp_path: Path) -> Iterator[list[RedisProcess]]:
    """Two servers for messages."""
    brokers = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        brokers.append(RedisProcess(folder))
    yield brokers
    for broker in brokers:
        broker.signal(signal.SIGKILL)


def agents_in(folder: Path) -> list[str]:
    """The options that name an agent file each, written to *folder*."""
    options = []
    for name in NAMES:
        file = folder / f"{name}.toml"
        file.write_text(AGENT.format(name=name))
        options += ["--agent", str(file)]
    return options


def test_a_broker_that_dies_stops_its_agents_alone_and_only_until_it_is_back(
    redis_url: str, brokers: list[RedisProcess], tmp_path: Path
) -> None:
    files = agents_in(tmp_path)
    here = [name for name in NAMES if queues.broker_of(name, 2) == 0]
    there = [name for name in NAMES if name not in here]
    assert here
    assert there
    with Deployment(redis_url, tmp_path) as deployment:
        deployment.environment["BOYD_BROKER_URL"] = " ".join(broker.url for broker in brokers)
        deployment.environment["BOYD_TIMING__RESEND_AFTER"] = "2"
        deployment.start("w", "worker", *files, ready=False)
        wait_until(lambda: len(deployment.store.fleet.workers()) == 2, 60)
        url = deployment.api("api")
        key = deployment.key("tests", "trigger", "read")

        def iterate(name: str) -> int:
            where = f"{url}/api/v0/agents/{name}/loop/trigger"
            answer = requests.post(where, headers=key, json={"async": True}, timeout=10)
            assert answer.status_code < 300, answer.text
            return int(answer.json()["iteration"])

        def has_ended(name: str, iteration: int) -> bool:
            return deployment.agent(name).history.get(iteration) is not None

        def completes(name: str, iteration: int) -> None:
            wait_until(lambda: has_ended(name, iteration), 30)

        for name in NAMES:
            completes(name, iterate(name))
        brokers[1].signal(signal.SIGKILL)
        stuck = {name: iterate(name) for name in there}
        for name in here:
            completes(name, iterate(name))
        assert not any(has_ended(name, number) for name, number in stuck.items())
        brokers[1].start()
        for name, number in stuck.items():
            completes(name, number)
        assert deployment.stop("w") == 0


def test_a_group_ends_as_a_whole_when_one_of_its_processes_is_killed(
    redis_url: str, brokers: list[RedisProcess], tmp_path: Path
) -> None:
    with Deployment(redis_url, tmp_path) as deployment:
        deployment.environment["BOYD_BROKER_URL"] = " ".join(broker.url for broker in brokers)
        deployment.start("w", "worker", *agents_in(tmp_path), ready=False)
        wait_until(lambda: len(deployment.store.fleet.workers()) == 2, 60)
        first, other = deployment.store.fleet.workers()

        killed = deployment.processes["w"]
        os.kill(first.pid, signal.SIGKILL)
        assert killed.wait(180) == 128 + signal.SIGKILL
        assert not Path(f"/proc/{other.pid}").exists()
