"""Attempts to escape from a sandbox; each function takes a text and returns one."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def about(_: str) -> str:
    """The process as it sees itself."""
    status = Path("/proc/self/status").read_text()
    return json.dumps(
        {
            "uid": os.getuid(),
            "capabilities": status.partition("CapEff:")[2].split()[0],
            "processes": sum(name.name.isdigit() for name in Path("/proc").iterdir()),
            "secrets": [name for name in os.environ if name.startswith(("BOYD_", "DATABASE_"))],
        }
    )


def loop(_: str) -> str:
    """Never end."""
    while True:
        pass


def hog(size: str) -> str:
    """Take memory."""
    return str(len(bytearray(int(size))))


def bomb(command: str) -> str:
    """Start processes until no more can be started."""
    if command:
        line = ["bash", "-c", command]
        return str(subprocess.run(line, check=False, stderr=subprocess.DEVNULL).returncode)
    for _ in range(1000):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    return "unlimited"


def change(path: str) -> str:
    """Change a file's mode, times and length, each as far as it goes."""
    with suppress(OSError):
        Path(path).chmod(0o777)
    with suppress(OSError):
        os.utime(path, (1, 1))
    with suppress(OSError):
        os.truncate(path, 1)
    return "tried"


def write(path: str) -> str:
    """Write a file with Python."""
    Path(path).write_text("here")
    return "written"


def write_elsewhere(path: str) -> str:
    """Write a file with a program, or else make a folder."""
    done = subprocess.run(["sh", "-c", f"echo here > {path}"], check=False, capture_output=True)
    return str(done.returncode)


def fill(size: str) -> str:
    """Write a large temporary file."""
    (Path(os.environ["TMPDIR"]) / "large").write_bytes(b"x" * int(size))
    return "written"


def fetch(url: str) -> str:
    """Read a page with Python."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def fetch_elsewhere(url: str) -> str:
    """Read a page with a program."""
    host, _, port = url.rpartition(":")
    line = f"exec 3<>/dev/tcp/{host}/{port}"
    done = subprocess.run(["bash", "-c", line], check=False, capture_output=True, text=True)
    return done.stderr or "connected"


def leave(path: str) -> str:
    """Leave a process behind that no one waits for, in a session of its own."""
    subprocess.Popen(["sleep", "1234"], start_new_session=True)
    return "left"


def harm(pid: str) -> str:
    """Change a process outside in ways that ask for nothing but its user, one by one."""
    other = int(pid)
    attempts: dict[str, Callable[[], object]] = {
        "limits": lambda: resource.prlimit(other, resource.RLIMIT_CPU, (1, 1)),
        "processors": lambda: os.sched_setaffinity(other, {0}),
        "scheduler": lambda: os.sched_setscheduler(other, os.SCHED_IDLE, os.sched_param(0)),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, other, 19),
        "namespace": lambda: _must(ctypes.CDLL(None).unshare(0x1000_0000)),
    }
    done = []
    for name, attempt in attempts.items():
        with suppress(OSError):
            attempt()
            done.append(name)
    return json.dumps(done)


def _must(status: int) -> None:
    if status:
        raise OSError


def plant(path: str) -> str:
    """Leave a module that the next process may take for one of Python's."""
    module = "import os; os.environ['PLANTED'] = 'yes'"
    (Path(path) / "fcntl.py").write_text(module)
    return "planted"


def planted(_: str) -> str:
    """Import a module planted in the working directory, if it is found."""
    return os.environ.get("PLANTED", "no")


def forge(_: str) -> str:
    """Spoil the log, and write a line that looks like one of the worker."""
    with suppress(OSError):
        os.ftruncate(2, 0)
    os.write(2, b"2026-01-01 INFO boyd.worker: a forged line\n")
    return "forged"


def end(pid: str) -> str:
    """Kill a process outside."""
    os.kill(int(pid), 9)
    return "killed"


def answer_by_hand(line: str) -> str:
    """Write that line to the socket of the answer, before the answer itself."""
    for number in range(3, 64):
        with suppress(OSError):
            connection = socket.socket(fileno=os.dup(number))
            with connection:
                connection.sendall(line.encode() + b"\n")
    return "the answer"


def answer_many(text: str) -> str:
    """Answer that text, a million times."""
    return text * 1_000_000
