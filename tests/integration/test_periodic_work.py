"""Several processes that look after the same agents: they share it, and miss nobody who dies."""

from __future__ import annotations

import pytest

from benchmarks.servers import record_commands
from harness import Deployment, wait_until

pytestmark = pytest.mark.real

AGENT = "traced"
WORKERS = ("a", "b", "c", "d")
#: What a process reads of those that have joined since it read last.
DETAILS = "HMGET boyd:{*}:workers:info "


def start_workers(deployment: Deployment) -> None:
    """Four workers of the same agent, of which one takes the steps of iterations."""
    for name in WORKERS:
        queue = "loop" if name == "a" else "observe"
        deployment.worker(name, f"agents.traced:{AGENT}", "-Q", queue)


def sweep_time(deployment: Deployment) -> int:
    """When the agent was last swept, in milliseconds of the Redis server."""
    return int(deployment.store.client.hget(f"boyd:{{{AGENT}}}:loop", "sweptAt") or 0)


def next_sweep(deployment: Deployment) -> None:
    """Wait for a sweep."""
    before = sweep_time(deployment)
    wait_until(lambda: sweep_time(deployment) != before)


def heartbeats(commands: list[str]) -> int:
    """Count the heartbeats among commands on the wire."""
    return sum("boyd:{*}:workers boyd:{*}:workers:info" in command for command in commands)


def seconds(deployment: Deployment) -> float:
    """The time of the Redis server."""
    whole, millionths = deployment.store.client.time()
    return float(whole + millionths / 1e6)


@pytest.mark.long
def test_four_processes_sweep_and_seal_hardly_more_often_than_one(deployment: Deployment) -> None:
    for name in ("SWEEP", "HEARTBEAT_INTERVAL"):
        deployment.environment[f"BOYD_TIMING__{name}"] = "0.4"
    start_workers(deployment)

    def sweeps() -> int:
        return sum(f"boyd:{{{AGENT}}}:due " in command for command in commands)

    def seals() -> int:
        return commands.count(f"XLEN boyd:{{{AGENT}}}:audit:open")

    began = seconds(deployment)
    with record_commands(deployment.redis_url) as commands:
        wait_until(lambda: min(sweeps(), seals()) >= 6)
    # A turn is held for three quarters of the interval; one was taken before, and may be late.
    most = (seconds(deployment) - began) / (0.75 * 0.4) + 2

    assert sweeps() <= most
    assert seals() <= most


@pytest.mark.long
def test_only_who_plans_iterations_reads_who_is_there_and_only_after_a_change(
    deployment: Deployment,
) -> None:
    deployment.environment["BOYD_TIMING__HEARTBEAT_INTERVAL"] = "0.5"
    start_workers(deployment)

    def reads(command: str) -> int:
        return sum(line.startswith(command) for line in commands)

    with record_commands(deployment.redis_url) as commands:
        wait_until(lambda: heartbeats(commands) >= 40)
        beats, lists = heartbeats(commands), reads("ZRANGE boyd:{*}:workers ")
        details, everything = reads(DETAILS), reads("HGETALL boyd:{*}:workers:info")
        deployment.worker("e", f"agents.traced:{AGENT}", "-Q", "observe")
        wait_until(lambda: reads(DETAILS) > details)

    # One of the four with each of its heartbeats would be a quarter.
    assert lists < beats / 8
    assert everything == 0


@pytest.mark.long
def test_when_all_but_one_die_the_one_goes_on_with_its_next_heartbeat(
    deployment: Deployment,
) -> None:
    deployment.environment["BOYD_TIMING__HEARTBEAT_INTERVAL"] = "1"
    start_workers(deployment)
    next_sweep(deployment)
    with record_commands(deployment.redis_url) as commands:
        for name in WORKERS[:-1]:
            deployment.kill(name)
        first = len(commands)
        for _ in range(3):
            next_sweep(deployment)

    # Each heartbeat asks for a turn; twice as many, for a machine that is slow to take it.
    assert heartbeats(commands[first:]) <= 2 * 3 + 2
