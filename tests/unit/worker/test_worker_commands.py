"""The processes of a worker of several brokers: how they end, and which signals reach them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Runs a group whose processes are shell scripts; `at_last` is called once both have been started.
GROUP = """
import os, signal, subprocess, sys
from boyd_worker.worker_commands import run_group

class Popen(subprocess.Popen):
    pids = []

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.pids.append(self.pid)
        if len(self.pids) == 2:
            at_last(*self.pids)

def wait_for_start(number):
    with open("ready-" + str(number)) as fifo:
        fifo.read()

def wait_for_end(pid):
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

def at_last(first, second):
    {at_last}

subprocess.Popen, sys.executable, sys.argv = Popen, "./process", ["boyd", "worker"]
{before}
sys.exit(run_group(2))
"""
#: Ends with status 0 on SIGTERM, from when it is ready on.
OBEYS = "trap 'exit 0' TERM; : > ready-{}; while :; do sleep 0.05; done"


def run(
    folder: Path, *processes: str, at_last: str = "pass", before: str = ""
) -> subprocess.CompletedProcess[str]:
    """The outcome of a group whose *processes* are these lines of shell."""
    cases = [f'*"--broker {number}") {line} ;;' for number, line in enumerate(processes, 1)]
    script = folder / "process"
    script.write_text("\n".join(["#!/bin/sh", 'case "$*" in', *cases, "esac\n"]))
    script.chmod(0o755)
    subprocess.run(["mkfifo", "ready-1", "ready-2"], cwd=folder, check=True)
    command = [sys.executable, "-c", GROUP.format(at_last=at_last, before=before)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_a_signal_may_come_when_a_process_has_just_ended(tmp_path: Path) -> None:
    moment = "wait_for_start(2); wait_for_end(first); os.kill(os.getpid(), signal.SIGTERM)"
    group = run(tmp_path, "exit 0", OBEYS.format(2), at_last=moment)
    assert (group.returncode, group.stderr) == (0, "")


def test_a_signal_reaches_all_processes(tmp_path: Path) -> None:
    moment = "wait_for_start(1); wait_for_start(2); os.kill(os.getpid(), signal.SIGTERM)"
    group = run(tmp_path, OBEYS.format(1), OBEYS.format(2), at_last=moment)
    assert (group.returncode, group.stderr) == (0, "")


@pytest.mark.parametrize(("end", "status"), [("exit 3", 3), ("kill -KILL $$", 137)])
def test_when_one_process_fails_the_others_are_terminated(
    tmp_path: Path, end: str, status: int
) -> None:
    group = run(tmp_path, end, OBEYS.format(2), at_last="wait_for_start(2)")
    assert (group.returncode, group.stderr) == (status, "")


def test_a_process_that_ends_well_leaves_the_others_alone(tmp_path: Path) -> None:
    group = run(tmp_path, "exit 0", "echo still here")
    assert (group.returncode, group.stdout) == (0, "still here\n")


def test_an_orphan_that_ends_is_no_process_of_the_group(tmp_path: Path) -> None:
    orphan = "orphan = os.fork()\nif orphan == 0: os._exit(0)\nwait_for_end(orphan)"
    group = run(tmp_path, "exit 0", "exit 0", before=orphan)
    assert (group.returncode, group.stderr) == (0, "")
