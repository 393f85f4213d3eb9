"""What a sandbox has to prevent; each function takes a text and returns one."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
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


def end(pid: str) -> str:
    """Kill a process outside."""
    os.kill(int(pid), 9)
    return "killed"
