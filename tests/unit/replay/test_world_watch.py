"""The watch refuses what a component reads of the world, and nothing that others read."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from boyd.agent import agent_from_file
from boyd.replay.recordings import FileOfRecords
from boyd.replay.replay_run import ShadowPool
from boyd.replay.shadow_process import ShadowTask
from boyd.replay.world_watch import WorldWatch
from replay_kit import AGENT, PLUGIN, record, write_agent, write_records

REFUSALS: list[str] = []
#: Reads that Python does not tell of by itself, with the beginning of the reason.
HIDDEN_READS = {
    "partial(datetime.now, UTC)().year": "uses datetime.now",
    "methodcaller('today')(date).year": "uses date.today",
    "next(iter(datetime.utcnow, None)).year": "uses datetime.utcnow",
    "[*map(time.gmtime, [None])][0].tm_year": "uses time.gmtime",
    "partial(time.strftime, '%Y')()": "uses time.strftime",
    "[*map(os.stat, '/')][0].st_ino": "uses os.stat",
    "partial(os.getpgrp)()": "uses os.getpgrp",
    "Stamped().at.year": "uses datetime.now",
    "logging.makeLogRecord({}).created // 1e8": "uses the time of a log record",
    "pwd.getpwuid(0).pw_dir": "uses pwd.getpwuid",
    "in_thread(lambda: datetime.now().year)": "uses threads",
    "ctypes.CDLL(None).getppid()": "uses functions of C libraries",
}
READING = """
import ctypes, logging, os, pwd, threading, time
from datetime import UTC, date, datetime
from functools import partial
from operator import methodcaller

from pydantic import BaseModel


class Stamped(BaseModel):
    at: datetime = Field(default_factory=datetime.now)


def in_thread(read):
    results = []
    thread = threading.Thread(target=lambda: results.append(read()))
    thread.start()
    thread.join()
    return results[0]

"""


class Refusal(Exception):
    """The watch has refused."""


def refuse(reason: str) -> NoReturn:
    REFUSALS.append(reason)
    raise Refusal(reason)


@pytest.fixture
def watch() -> Iterator[WorldWatch]:
    """A watch that is on."""
    REFUSALS.clear()
    watch = WorldWatch(refuse)
    watch.is_on = True
    yield watch
    watch.is_on = False


def test_a_clock_is_refused(watch: WorldWatch) -> None:
    def component() -> float:
        return time.time()

    with pytest.raises(Refusal, match=r"p:s uses time\.time"):
        watch.wrap("p:s", component)()


def test_the_callbacks_of_the_garbage_collector_are_not_of_the_component(
    watch: WorldWatch,
) -> None:
    def read_the_clock(phase: str, info: dict[str, int]) -> None:
        time.perf_counter()

    def component() -> int:
        return len([[[]] for _ in range(5000)])

    thresholds = gc.get_threshold()
    gc.callbacks.append(read_the_clock)
    gc.set_threshold(1)
    try:
        assert watch.wrap("p:s", component)() == 5000
        assert gc.isenabled()
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(read_the_clock)
    assert REFUSALS == []


def test_reads_that_python_does_not_tell_of_cannot_be_judged(tmp_path: Path) -> None:
    plugin = PLUGIN.replace('["errors"] > 4', '["errors"] >= 0')
    records = record(agent_from_file(write_agent(tmp_path / "then", AGENT, plugin)), 12)
    reads = "".join(f"lambda: {read}, " for read in HIDDEN_READS)
    plugin = plugin.replace("LIMIT = 60", f"{READING}READS = [{reads}]\nLIMIT = 60")
    plugin = plugin.replace("def restart(self,", "def restart(self, ctx: Context,")
    plugin = plugin.replace('known["host"]}', "str(READS[ctx.iteration - 1]())[-9:]}")
    task = ShadowTask(agent=str(write_agent(tmp_path / "now", AGENT, plugin)), paths=sys.path)
    file = FileOfRecords(write_records(tmp_path / "records", records), lambda _number: True)

    with ShadowPool(task, 1) as pool:
        judgements = [item for portion in pool.judge(file.portions()) for item in portion]

    assert len(judgements) == len(HIDDEN_READS)
    for judgement, reason in zip(judgements, HIDDEN_READS.values(), strict=True):
        assert (judgement.differences, judgement.after) == (["cannot tell"], None), reason
        assert reason in str(judgement.why)
