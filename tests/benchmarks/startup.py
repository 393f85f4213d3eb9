"""Starting, and what an idle deployment on one machine costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from benchmarks.report import Report
from harness import wait_until

_AGENT = 'id = "bench"\nmode = "continuous"\nloop_interval = 60\n[[plugins]]\nuse = "example"\n'


def measure(report: Report, folder: Path) -> None:
    """Import it, start it, and let it idle."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import boyd"], check=True)
    bare = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    took = (bare - began) - (time.perf_counter() - bare)
    report.add("import boyd", took, "s", "< 0.3", took < 0.3)
    agent = folder / "agent.toml"
    agent.write_text(_AGENT)
    environment = {**os.environ, "BOYD_STATE_DIR": str(folder / "state"), "BOYD_API__PORT": "0"}
    began = time.perf_counter()
    with (folder / "up.log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "boyd_cli", "up", str(agent)],
            env=environment,
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(lambda: "bench #1" in Path(log.name).read_text(), 60)
            took = time.perf_counter() - began
            report.add("boyd up to the first iteration", took, "s", "< 5", took < 5)
            time.sleep(5)
            before = cpu(process.pid)
            time.sleep(20)
            share = (cpu(process.pid) - before) / 20 * 100
            report.add("idle CPU of the embedded tree", share, "% of core", "< 3", share < 3)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def cpu(pid: int) -> float:
    """Seconds of CPU that a process and its descendants have used."""
    root = psutil.Process(pid)
    processes = [root, *root.children(recursive=True)]
    return sum(sum(p.cpu_times()[:2]) for p in processes)
