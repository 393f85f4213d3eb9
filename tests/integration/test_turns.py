"""Several processes that look after the same agents: they share it, and miss nobody who dies."""

from __future__ import annotations

import itertools
import time

import pytest

from benchmarks.servers import monitored
from boyd.settings.process_settings import TimingSettings
from harness import Deployment, wait_until

pytestmark = pytest.mark.real

AGENT = "traced"
WORKERS = ("a", "b", "c", "d")


def started(deployment: Deployment) -> None:
    """Four workers of the same agent, of which one takes the steps of iterations."""
    for name in WORKERS:
        queue = "loop" if name == "a" else "observe"
        deployment.worker(name, f"agents.traced:{AGENT}", "-Q", queue)


def swept(deployment: Deployment) -> int:
    """When the agent was last swept, in milliseconds of the Redis server."""
    return int(deployment.store.client.hget(f"boyd:{{{AGENT}}}:loop", "sweptAt") or 0)


def sweeps(deployment: Deployment, count: int) -> list[int]:
    """When the next *count* sweeps were."""
    found = [swept(deployment)]
    for _ in range(count):
        found.append(wait_until(lambda: (at := swept(deployment)) != found[-1] and at))
    return found[1:]


def gaps(times: list[int]) -> list[float]:
    """Seconds between each and the next."""
    return [(b - a) / 1000 for a, b in itertools.pairwise(times)]


def test_four_processes_sweep_and_seal_hardly_more_often_than_one(deployment: Deployment) -> None:
    started(deployment)
    with monitored(deployment.redis_url) as seen:
        time.sleep(8)
    sweeps = sum(f"boyd:{{{AGENT}}}:due " in command for command in seen)
    seals = sum(command == f"XLEN boyd:{{{AGENT}}}:audit:open" for command in seen)

    # Alone each would have done it eight times.
    assert 6 <= sweeps <= 8 / 0.75 + 1
    assert 6 <= seals <= 8 / 0.75 + 1


def test_only_who_plans_iterations_reads_who_is_there_and_nothing_twice(
    deployment: Deployment,
) -> None:
    started(deployment)
    with monitored(deployment.redis_url) as seen:
        time.sleep(6)
    beats = sum("boyd:{*}:workers boyd:{*}:workers:info" in command for command in seen)
    names = sum(command.startswith("ZRANGE boyd:{*}:workers ") for command in seen)
    infos = sum(command.startswith("HMGET boyd:{*}:workers:info ") for command in seen)

    assert beats >= 4 * 2
    assert 2 <= names <= 4
    assert infos <= 1
    assert not [command for command in seen if command.startswith("HGETALL boyd:{*}:workers")]


def test_when_all_but_one_die_the_one_goes_on_with_its_next_heartbeat(
    deployment: Deployment,
) -> None:
    started(deployment)
    [last] = sweeps(deployment, 1)
    for name in WORKERS[:-1]:
        deployment.kill(name)
    after = sweeps(deployment, 3)

    # It beats within 1.2 intervals, and then asks for a turn too; twice that, for a slow machine.
    assert max(gaps([last, *after])) < 2 * 1.2 * TimingSettings().heartbeat_interval
