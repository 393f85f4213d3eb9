"""Runs a function in a separate process, which is killed after a timeout.

Use it for calls that Python cannot interrupt, and for inputs that may need too much time or memory.
The argument is passed by standard input and the result through a pipe, both as text; printed output
goes to the log.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

from boyd.errors import Overrun
from boyd.text.formatting import error_line

_PR_SET_PDEATHSIG = 1
#: Seconds in which a process ends after its answer.
_ENDING = 1.0
#: Seconds between two looks whether the process still lives.
_PAUSE = 0.1
# Loaded at import, as loading a library between fork and exec is unsafe.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def follow_parent(death_signal: int, parent: int) -> None:
    """Ask the kernel to send this process *death_signal* when its *parent* (a pid) ends.

    Call it in the child: as `preexec_fn`, or first in a forked pool process, which does not inherit
    the request. The parent is the thread that forked, so fork from the main thread. The request
    survives exec, unless exec changes the user.
    """
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
    if os.getppid() != parent:  # it ended before the request
        os._exit(1)


class Failed(RuntimeError):
    """The function raised an error, or its process ended without a result."""


def call(function: str, argument: str, timeout: float, memory: int | None = None) -> str:
    """Call a function in a new process.

    Args:
        function: `module:name` of a function from text to text.
        argument: its argument.
        timeout: seconds until its process group is killed.
        memory: limit of its address space in bytes.

    Raises:
        Overrun: it took longer than *timeout* seconds.
        Failed: the function failed, or its process died.
    """
    reading, writing = os.pipe()
    process = subprocess.Popen(  # noqa: S603 - our own module, no shell
        [
            *(sys.executable, "-P", "-m", "boyd.sandbox.subprocess_call", function),
            *(str(writing), str(os.getpid()), str(memory or 0)),
        ],
        stdin=subprocess.PIPE,
        pass_fds=[writing],
        start_new_session=True,
        text=True,
        encoding="utf-8",
        errors="surrogatepass",
    )
    os.close(writing)
    try:
        line = _converse(process, argument, reading, timeout)
    finally:
        _kill(process)
        os.close(reading)
    if not line:
        raise Failed(f"its process ended with status {process.returncode}")
    outcome = json.loads(line)
    if "error" in outcome:
        raise Failed(outcome["error"])
    return str(outcome["answer"])


def _converse(process: subprocess.Popen[str], request: str, pipe: int, timeout: float) -> bytes:
    """Send the request and read the answer; empty: the process has ended without one."""
    until = time.monotonic() + timeout
    # It writes while we read: a process need not read all before it answers.
    threading.Thread(target=_send, args=(process, request), daemon=True).start()
    line = _line(process, pipe, until)
    # Let it end by itself; an answer is there, so its threads and children are not waited for.
    seconds = _ENDING if line else until - time.monotonic()
    try:
        process.wait(max(0.0, seconds))
    except subprocess.TimeoutExpired:
        if not line:
            raise Overrun(f"took longer than {timeout:g} s") from None
    return line


def _send(process: subprocess.Popen[str], request: str) -> None:
    assert process.stdin is not None
    with suppress(OSError), process.stdin as standard_input:  # it may end before it has read all
        standard_input.write(request)


def _line(process: subprocess.Popen[str], pipe: int, until: float) -> bytes:
    """The answer, which ends with a new line.

    The end of the pipe is not waited for: processes that were left behind may hold it.
    """
    parts: list[bytes] = []
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0:
            has_ended = process.poll() is not None
            if selector.select(0 if has_ended else min(left, _PAUSE)):
                parts.append(os.read(pipe, 1 << 20))
                if not parts[-1]:
                    return b""
                if parts[-1].endswith(b"\n"):
                    return b"".join(parts)
            elif has_ended:
                return b""
    return b""


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> None:
    """Run one function, given its name, the pipe, the parent's pid, and the memory limit or 0."""
    name, pipe, parent, memory = sys.argv[1:]
    follow_parent(signal.SIGKILL, int(parent))
    if int(memory):
        with suppress(ValueError, OSError):  # some systems do not support the limit
            resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    # One process answers, and what it starts does not hold the pipe.
    answers = os.fdopen(int(pipe), "w", encoding="utf-8")
    os.set_inheritable(int(pipe), False)
    os.register_at_fork(after_in_child=answers.close)
    module, _, function = name.partition(":")
    argument = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    try:
        outcome = {"answer": getattr(importlib.import_module(module), function)(argument)}
    except BaseException as error:  # noqa: BLE001 - the parent reports it
        outcome = {"error": error_line(error)}
    answers.write(json.dumps(outcome) + "\n")
    answers.close()


if __name__ == "__main__":
    main()
