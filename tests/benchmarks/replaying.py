"""The number of recorded iterations that a replay judges in a second."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from boyd.agent import agent_from_file
from boyd.replay.recordings import portions_of
from boyd.replay.replay_run import ShadowPool
from boyd.replay.shadow_process import ShadowTask
from replay_kit import record, write_agent

#: Iterations that are recorded, and how often they are replayed.
RECORDED, TIMES = 200, 100


def rates(folder: Path) -> dict[int, float]:
    """Iterations a second by the number of processes, once these have started."""
    path = write_agent(folder / "replayed")
    texts = [iteration.to_json() for iteration in record(agent_from_file(path), RECORDED)]
    cores = len(os.sched_getaffinity(0))
    return {jobs: _rate(path, texts, jobs) for jobs in sorted({1, min(2, cores), min(4, cores)})}


def _rate(path: Path, texts: list[str], jobs: int) -> float:
    with ShadowPool(ShadowTask(agent=str(path), paths=sys.path), jobs) as pool:
        # Each process starts with its first portion.
        list(pool.judge(list(portions_of(texts)) * jobs))
        began = time.perf_counter()
        done = sum(map(len, pool.judge(list(portions_of(texts)) * TIMES)))
        return done / (time.perf_counter() - began)
