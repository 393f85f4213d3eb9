"""A wave over a thousand targets whose workers and Redis are killed: each target at most once."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import redis
from pydantic import BaseModel

from boyd import Agent, Plugin, Procedure, ProcedureStep, action
from boyd.errors import StoreError
from boyd.models import Actor, CallRequest, ProcedureRecord, WaveProgress
from boyd.store import connect
from boyd.testing import Lab
from redis_kit import RedisServer

pytestmark = [pytest.mark.real, pytest.mark.long]

ANN = Actor(principal="ann", person=True)
TARGETS, WORKERS = 1000, 20
#: A list of the jobs that are due, for whichever worker comes first.
HINTS = "hints"


class Host(BaseModel):
    """The params of the action."""

    host: str


def make_agent(effects: Path) -> Agent:
    """An agent that writes the hosts on which it has acted into a file."""

    class Fleet(Plugin):
        """Acts on hosts."""

        id = "fleet"
        components = (
            Procedure(
                name="all",
                within=86400,
                steps=[
                    ProcedureStep(
                        id="patch",
                        action="fleet:patch",
                        params={"host": "${item}"},
                        for_each=[f"host-{number}" for number in range(TARGETS)],
                        wave=[1, "10%", "50%"],
                        at_once=WORKERS,
                        stop_at=TARGETS,
                    )
                ],
            ),
        )

        @action(target="host")
        def patch(self, params: Host) -> None:
            """Act on a host."""
            with effects.open("a", encoding="utf-8") as file:
                file.write(f"{params.host}\n")
            time.sleep(random.uniform(0, 0.03))

    return Agent("test", plugins=[Fleet()])


def make_lab(url: str, effects: Path) -> Lab:
    """A lab whose messages go to all workers."""
    client = connect(url)
    lab = Lab(make_agent(effects), client=client)

    def send(agent_id: str, name: str, attempt: int, queue: str | None) -> None:
        client.rpush(HINTS, f"{attempt} {name}")

    lab.dispatcher.job = send  # type: ignore[method-assign]
    return lab


def work(url: str, effects: Path) -> None:
    """Do what is due, for ever, and look now and then for what is overdue."""
    lab, swept = None, time.monotonic() + random.uniform(-1, 0)
    while True:
        with suppress(StoreError, redis.RedisError):
            lab = lab or make_lab(url, effects)
            hint = lab.client.blpop([HINTS], 1)
            if hint:
                attempt, _, name = hint[1].partition(" ")
                lab.jobs.execute(name, int(attempt))
            if time.monotonic() - swept > 1:
                swept = time.monotonic()
                lab.deliver()
                lab.sweeper.sweep()


class Storm:
    """Workers and a Redis that loses nothing it has confirmed, all of which are killed."""

    def __init__(self, folder: Path) -> None:
        durable = ("--appendonly", "yes", "--appendfsync", "always")
        self._redis = RedisServer(folder, *durable)
        self._redis.start()
        self._workers: list[BaseProcess] = []
        self.url = self._redis.url
        self.effects = folder / "effects"
        self.kills = self.restarts = 0

    def restart(self) -> None:
        """Kill Redis, and start it again."""
        self._redis.signal(signal.SIGKILL)
        self.restarts += 1
        self._redis.start()

    def hire(self) -> None:
        """Start workers until there are enough."""
        fork = multiprocessing.get_context("fork")
        while len(self._workers) < WORKERS:
            worker = fork.Process(target=work, args=(self.url, self.effects), daemon=True)
            worker.start()
            self._workers.append(worker)

    def kill(self, dice: random.Random) -> None:
        """Kill a worker, and start another one."""
        worker = self._workers.pop(dice.randrange(len(self._workers)))
        os.kill(worker.pid or 0, signal.SIGKILL)
        worker.join()
        self.kills += 1
        self.hire()

    def close(self) -> None:
        """End all."""
        for worker in self._workers:
            worker.kill()
            worker.join()
        self._redis.signal(signal.SIGKILL)


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[Storm]:
    """A running Redis and its workers."""
    storm = Storm(tmp_path)
    yield storm
    storm.close()


def test_each_of_a_thousand_targets_is_executed_at_most_once(storm: Storm) -> None:
    dice = random.Random(7)
    lab = make_lab(storm.url, storm.effects)
    call = CallRequest(kind="execute", action="fleet:all", params={}, actor=ANN)
    id = f"call:{lab.launcher.call(call, None)}"
    storm.hire()

    counts: list[int] = []
    until, restart_at = time.monotonic() + 400, [150, 450, 800]
    while (record := _record(lab, id)) is None or not record.has_ended:
        assert time.monotonic() < until, record and record.summary
        wave = record.progress[0].wave if record else None
        if record and record.state == "stopped":
            assert "Redis restarted" in (record.reason or ""), record.reason
            lab.store.procedures.resume(id, "go on", ANN)
        if wave:
            counts.append(wave.over)
        if wave and restart_at and wave.over >= restart_at[0]:
            del restart_at[0]
            storm.restart()
        storm.kill(dice)
        time.sleep(dice.uniform(0.5, 1.5))

    assert record.state == "succeeded", record.reason
    assert storm.restarts == 3
    assert counts == sorted(counts)
    check(storm, lab, id, record)


def check(storm: Storm, lab: Lab, id: str, record: ProcedureRecord) -> None:
    """Compare what was done with what the record says."""
    wave = record.progress[0].wave
    assert isinstance(wave, WaveProgress)
    effects = Counter(storm.effects.read_text(encoding="utf-8").split())
    assert [host for host, times in effects.items() if times > 1] == []
    states = {
        f"host-{number}": target.state
        for number in range(TARGETS)
        if (target := lab.store.waves.get(f"{id}:patch", number))
    }
    assert set(states.values()) <= {"done", "unknown"}
    assert {host for host, state in states.items() if state == "done"} <= effects.keys()
    assert len(effects) >= TARGETS - wave.count("unknown")
    assert wave.count("unknown") <= storm.kills + storm.restarts * WORKERS
    assert wave.count("done", "unknown") == TARGETS


def _record(lab: Lab, id: str) -> ProcedureRecord | None:
    with suppress(StoreError):
        return lab.store.procedures.get(id)
    return None
