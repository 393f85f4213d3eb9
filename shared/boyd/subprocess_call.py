"""Runs a function in a process of its own, which is killed when its time is up, whatever it does.

For what Python cannot interrupt, and for inputs that may take more time or memory than they should.
The argument goes in by standard input and the answer comes back through a pipe, both as text; what
the function prints goes to the log.
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

_PR_SET_PDEATHSIG = 1
# Looked up at import: between fork and exec is no place to load a library.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def follow_parent(death_signal: int, parent: int) -> None:
    """Have the kernel send this process *death_signal* when its parent is gone.

    Runs in the child: as `preexec_fn`, or first thing in a forked pool process, which does not
    inherit the wish of the process it was forked from. Two things to know: "the parent" is the
    thread that forked, so fork from the main thread; and the wish survives exec, unless exec
    changes the user.

    Args:
        death_signal: what to send.
        parent: the pid that the parent had before the fork.
    """
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
    if os.getppid() != parent:  # it died before the wish was known
        os._exit(1)


class Failed(RuntimeError):
    """What the function has raised, or why its process ended without an answer."""


def call(function: str, argument: str, timeout: float, memory: int | None = None) -> str:
    """What a function makes of *argument*, in a new process.

    Args:
        function: `module:name` of a function of ours that takes a text and returns one.
        argument: the text.
        timeout: seconds until the process is killed, with all that it has started.
        memory: bytes of addresses that it may have; None: as many as there are.

    Raises:
        Overrun: it took longer than *timeout* seconds.
        Failed: the function failed, or its process died.
    """
    reading, writing = os.pipe()
    process = subprocess.Popen(  # noqa: S603 - our own module, no shell
        [
            *(sys.executable, "-m", "boyd.subprocess_call", function),
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
    # The pipe is read while the process runs, or a large answer would block it.
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
    """Run one function: its name, the pipe, the parent's pid, the bytes of memory or 0."""
    name, pipe, parent, memory = sys.argv[1:]
    follow_parent(signal.SIGKILL, int(parent))
    if int(memory):
        with suppress(ValueError, OSError):  # not all systems have the limit
            resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    module, _, function = name.partition(":")
    given = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    try:
        outcome = {"answer": getattr(importlib.import_module(module), function)(given)}
    except (Exception, Overrun) as error:  # noqa: BLE001 - the parent reports it
        outcome = {"error": f"{type(error).__name__}: {error}"}
    with os.fdopen(int(pipe), "w", encoding="utf-8") as answers:
        json.dump(outcome, answers)


if __name__ == "__main__":
    main()
