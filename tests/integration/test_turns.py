"""Several processes that look after the same agents: they share it, and miss nobody who dies."""

from __future__ import annotations

import itertools
import time

import pytest

from benchmarks.run import monitored
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


def test_when_all_but_one_die_the_one_goes_on_within_two_intervals(deployment: Deployment) -> None:
    started(deployment)
    before = sweeps(deployment, 5)
    for name in WORKERS[:-1]:
        deployment.kill(name)
    after = sweeps(deployment, 3)

    # Three quarters of an interval for which the dead one's turn counts, and 1.2 intervals.
    assert max(gaps([before[-1], *after])) < 2 * max(gaps(before))


def test_what_is_due_at_once_is_not_held_up_by_turns(deployment: Deployment) -> None:
    started(deployment)
    client = deployment.store.client
    due = f"boyd:{{{AGENT}}}:due"
    members = {f"call:none-{n}": 1 for n in range(1000)}

    def seconds() -> float:
        client.zadd(due, members)
        began = time.monotonic()
        wait_until(lambda: client.zcard(due) == 0)
        return time.monotonic() - began

    turn = max(gaps(sweeps(deployment, 4)))
    # A hundred each time: ten turns, if each waited for its time. A busy machine may have a bad
    # moment, but not three.
    assert any(seconds() < 5 * turn for _ in range(3))
