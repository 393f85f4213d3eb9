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
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from boyd.errors import Overrun
from boyd.formatting import message_of

_PR_SET_PDEATHSIG = 1
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
            *(sys.executable, "-P", "-m", "boyd.subprocess_call", function),
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
    with os.fdopen(reading, encoding="utf-8") as pipe:
        try:
            answer = _converse(process, argument, pipe.read, timeout)
        finally:
            _kill(process)
    if not answer:
        raise Failed(f"its process ended with status {process.returncode}")
    outcome = json.loads(answer)
    if "error" in outcome:
        raise Failed(outcome["error"])
    return str(outcome["answer"])


def _converse(
    process: subprocess.Popen[str], request: str, read: Callable[[], str], timeout: float
) -> str:
    answer: list[str] = []
    # Read while the process runs: a large result would block it.
    reader = threading.Thread(target=lambda: answer.append(read()), daemon=True)
    reader.start()
    try:
        process.communicate(request, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Overrun(f"took longer than {timeout:g} s") from None
    reader.join(timeout=1)
    return answer[0] if answer else ""


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
    module, _, function = name.partition(":")
    given = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    try:
        outcome = {"answer": getattr(importlib.import_module(module), function)(given)}
    except BaseException as error:  # noqa: BLE001 - the parent reports it
        outcome = {"error": f"{type(error).__name__}: {message_of(error)}"}
    with os.fdopen(int(pipe), "w", encoding="utf-8") as answers:
        json.dump(outcome, answers)


if __name__ == "__main__":
    main()
