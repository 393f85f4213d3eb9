"""Calls in processes of their own end with their answer, whatever the function leaves behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from boyd.errors import Overrun
from boyd.sandbox import subprocess_call

FUNCTIONS = '''
import ctypes, os, sys, threading, time

def plain(text): return text[::-1]

def big(text): return text * 1_000_000

def note(text, pid):
    with open(text, "a") as file:
        file.write(f"{pid}\\n")

def daemon(text):
    """As C libraries and shells start them: no descriptor is closed."""
    os.system(f"setsid sh -c 'echo $$ >> {text}; exec sleep 300' >/dev/null 2>&1 &")
    while not os.path.exists(text): time.sleep(0.01)
    return "answer"

def fork(text):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        time.sleep(300)
        os._exit(0)
    note(text, pid)
    return "answer"

def fork_in_c(text):
    """Python does not know of it."""
    pid = ctypes.CDLL(None).fork()
    if pid == 0:
        os.setsid()
        time.sleep(300)
        os._exit(0)
    note(text, pid)
    return "answer"

def fork_in_c_and_die(text):
    fork_in_c(text)
    os._exit(7)

def fork_in_c_and_hang(text):
    fork_in_c(text)
    time.sleep(300)

def fork_returns(text):
    """Both processes return."""
    child = os.fork() == 0
    time.sleep(0 if child else 0.3)
    return "of the child" if child else "answer"

def closes(text):
    sys.stdout.close()
    os.close(1)
    os.close(2)
    return "answer"

def thread(text):
    threading.Thread(target=time.sleep, args=(300,)).start()
    return "answer"

def dies(text): os._exit(7)

def exits(text): sys.exit("no more")

def mute(text): raise KeyError

def hangs(text): time.sleep(300)
'''


@pytest.fixture
def run_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Call one of the functions, with the file for the ids of the processes it leaves."""
    (tmp_path / "odd_functions.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    left = tmp_path / "left"

    def call(name: str, timeout: float = 60, argument: str = str(left)) -> str:
        return subprocess_call.call(f"odd_functions:{name}", argument, timeout)

    yield call
    for pid in left.read_text().split() if left.exists() else []:
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def test_a_call_returns_the_answer_of_its_function(run_function: Callable[..., Any]) -> None:
    assert run_function("plain", argument="abc ü\ud800\n") == "\n\ud800ü cba"
    assert run_function("plain", argument="x" * 1_000_000) == "x" * 1_000_000
    assert run_function("big", argument="ab") == "ab" * 1_000_000


LEFT = ["daemon", "fork", "fork_in_c", "fork_returns", "thread", "closes"]


@pytest.mark.parametrize("name", LEFT)
def test_processes_left_behind_do_not_hold_back_the_answer(
    name: str, run_function: Callable[..., Any]
) -> None:
    assert run_function(name) == "answer"


@pytest.mark.parametrize("name", ["dies", "fork_in_c_and_die"])
def test_a_process_that_ends_without_an_answer_has_failed(
    name: str, run_function: Callable[..., Any]
) -> None:
    with pytest.raises(subprocess_call.Failed, match="its process ended with status 7"):
        run_function(name)


def test_an_error_without_a_text_is_its_type(run_function: Callable[..., Any]) -> None:
    with pytest.raises(subprocess_call.Failed, match=r"^KeyError$"):
        run_function("mute")


def test_an_exit_is_an_error(run_function: Callable[..., Any]) -> None:
    with pytest.raises(subprocess_call.Failed, match="SystemExit: no more"):
        run_function("exits")


def open_pipes() -> set[str]:
    """The pipes and sockets that this process has open."""
    targets = {os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()}
    return {target for target in targets if "pipe:" in target or "socket:" in target}


@pytest.mark.parametrize("name", ["hangs", "fork_in_c_and_hang"])
def test_a_call_ends_at_its_time_limit(name: str, run_function: Callable[..., Any]) -> None:
    pipes_before = open_pipes()
    with pytest.raises(Overrun, match=r"took longer than 1\.5 s"):
        run_function(name, timeout=1.5)

    # Other tests may leave some that are closed meanwhile.
    assert open_pipes() <= pipes_before


def test_the_answer_is_one_line(run_function: Callable[..., Any]) -> None:
    lines = json.dumps(["a\nb\n"] * 3)

    assert run_function("plain", argument=lines) == lines[::-1]
