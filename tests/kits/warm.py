"""Starts processes of Boyd by forking one that has imported all they need.

Importing costs most of what a start takes, and tests start hundreds of processes. Each is a real
process with a session of its own, which can be killed, frozen and waited for like any other.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

#: Where processes find the agents and the kits of tests.
FOLDERS = tuple(str(folder) for folder in Path(__file__).parents[:2])
#: What workers, beats and API processes import, directly or later.
MODULES = (
    *("boyd_cli.group", "boyd.health.checks", "boyd_goals.plugin", "boyd.testing"),
    *(
        "boyd_worker.beat",
        "boyd_worker.worker_commands",
        "boyd_worker.worker",
        "boyd_worker.plugin_processes",
    ),
    *("boyd_api.app", "boyd_api.commands", "boyd_api.http.server"),
    *("celery.app.amqp", "celery.app.control", "celery.app.events", "celery.app.log"),
    *("celery.backends", "celery.concurrency.prefork", "celery.concurrency.thread"),
    *("celery.fixups.django", "celery.loaders.app", "celery.worker.components"),
    *("celery.worker.consumer", "celery.worker.strategy", "celery.worker.autoscale"),
    *("celery.worker.pidbox", "celery.worker.request", "celery.worker.control"),
    *("kombu.transport.redis", "kombu.asynchronous.hub", "kombu.asynchronous.http"),
    *("asyncio", "concurrent.futures.thread", "http.client", "multiprocessing.pool"),
)
#: The most bytes of a request: arguments and an environment.
_MOST = 200_000
#: Of Linux: the signal that a process gets when its parent has ended.
_PR_SET_PDEATHSIG = 1


class Forked:
    """A process that was forked; what `subprocess.Popen` offers of it."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = pipe

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not ended in time.
        """
        status = self._look(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(["boyd"], timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended just now
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to stop."""
        self.send_signal(15)

    def kill(self) -> None:
        """End it."""
        self.send_signal(9)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], timeout)[0]:
            status_text = os.read(self._ended, 16)
            os.close(self._ended)
            # Nothing is told when the parent is gone, which ends only when the tests do.
            self.returncode = int(status_text or b"-9")
        return self.returncode


class Nursery:
    """The process that is forked, seen from the tests."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {
            name: text for name, text in os.environ.items() if not name.startswith("BOYD_")
        }
        paths = filter(None, (*FOLDERS, os.environ.get("PYTHONPATH")))
        # The mathematics of numpy would start threads, and a process with threads must not fork.
        environment |= {"PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "warm", str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._lock = threading.Lock()

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        out: int,
        errors: int | None = None,
        stdin: int | None = None,
    ) -> Forked:
        """Start `boyd` with *arguments*; it writes to the descriptors *out* and *errors*.

        Without *stdin* it reads nothing.
        """
        streams = {1: out, 2: out if errors is None else errors}
        streams |= {} if stdin is None else {0: stdin}
        order_fields = [str(Path.cwd()), list(arguments), dict(environment), list(streams)]
        order = json.dumps(order_fields).encode()
        assert len(order) < _MOST, "the environment is too large"
        read_end, write_end = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._line, [order], [write_end, *streams.values()])
                pid = int(self._line.recv(16))
        finally:
            os.close(write_end)
        return Forked(pid, read_end)

    def close(self) -> None:
        """End the process, and with it those that it has started."""
        self._line.close()
        self._process.wait()


class _Parent:
    """The process that is forked, seen from within."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._events = selectors.DefaultSelector()
        self._events.register(line, selectors.EVENT_READ)
        #: Where the end of a process is told, by a descriptor that can be waited for.
        self._ended: dict[int, tuple[int, int]] = {}

    def serve(self) -> list[str] | None:
        """Fork until the tests end; in each child the arguments that it was given."""
        while True:
            for key, _ in self._events.select():
                if key.fd != self._line.fileno():
                    self._bury(key.fd)
                    continue
                order, descriptors, _, _ = socket.recv_fds(self._line, _MOST, 4)
                if not order:
                    return None
                status_pipe, *streams = descriptors
                pid = os.fork()
                if pid == 0:
                    return self._become(json.loads(order), streams, status_pipe)
                for stream in streams:
                    os.close(stream)
                self._wait_for_session(pid)
                self._line.send(str(pid).encode())
                watched = os.pidfd_open(pid)
                self._ended[watched] = (pid, status_pipe)
                self._events.register(watched, selectors.EVENT_READ)

    @staticmethod
    def _wait_for_session(pid: int) -> None:
        """Wait until killing the process group of a process would kill that, and nothing else."""
        with suppress(ProcessLookupError):
            while os.getsid(pid) != pid:
                time.sleep(0.0005)

    def _bury(self, watched: int) -> None:
        self._events.unregister(watched)
        pid, status_pipe = self._ended.pop(watched)
        _, status = os.waitpid(pid, 0)
        os.close(watched)
        with suppress(BrokenPipeError):
            os.write(status_pipe, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(status_pipe)

    def _become(
        self,
        order: tuple[str, list[str], dict[str, str], list[int]],
        streams: Sequence[int],
        status_pipe: int,
    ) -> list[str]:
        folder, arguments, environment, numbers = order
        os.setsid()
        # Nothing outlives tests that are interrupted.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for number, stream in zip(numbers, streams, strict=True):
            os.dup2(stream, number)
            os.close(stream)
        # How they buffer depends on whether they lead to a terminal.
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
        self._line.close()
        self._events.close()
        for watched, (_, other) in self._ended.items():
            os.close(watched)
            os.close(other)
        os.close(status_pipe)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        return arguments


def main() -> None:
    """Import everything, and fork at each request; a child becomes `boyd`."""
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a process with threads cannot fork"
    arguments = _Parent(socket.socket(fileno=int(sys.argv[1]))).serve()
    if arguments is None:
        return
    import boyd_cli as cli

    sys.argv = [str(Path(cli.__file__).with_name("__main__.py")), *arguments]
    cli.main()


if __name__ == "__main__":
    main()
