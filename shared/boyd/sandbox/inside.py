"""The process of a sandbox: it limits itself for good before it loads anything.

What it reports of violations helps people; the kernel prevents them, whatever it reports. A sandbox
with destinations has a network of its own without a way out: an address there stands for each
destination, and the worker forwards connections to it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import importlib
import json
import os
import resource
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from boyd.errors import LimitExceeded
from boyd.models.action import LimitName, LimitViolation
from boyd.sandbox import kernel
from boyd.sandbox.destinations import REFUSED
from boyd.text.formatting import message_of

#: Seconds in which a destination has to accept a connection.
_CONNECT = 10.0
_CHUNK = 65536


class Forwarder:
    """Passes connections of a sandbox on, until it is closed."""

    def __init__(self, listeners: Sequence[socket.socket], destinations: Sequence[str]) -> None:
        """Accept from each of *listeners* for the destination of the same place."""
        self._open: set[socket.socket] = set(listeners)
        self._lock = threading.Lock()
        self._closed = False
        for listener, destination in zip(listeners, destinations, strict=True):
            _in_background(self._accept, listener, destination)

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            self._closed = True
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()
            self._open.clear()

    def _keep(self, *sockets: socket.socket) -> bool:
        with self._lock:
            self._open.update(sockets)
            closed = self._closed
        if closed:
            self.close()
        return not closed

    def _accept(self, listener: socket.socket, destination: str) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = listener.accept()
                if self._keep(accepted):
                    _in_background(self._connect, accepted, destination)

    def _connect(self, accepted: socket.socket, destination: str) -> None:
        host, _, port = destination.rpartition(":")
        try:
            there = socket.create_connection((host, int(port)), _CONNECT)
        except OSError:
            self._drop(accepted)  # as if the destination had refused it
            return
        there.settimeout(None)
        if self._keep(there):
            answers = _in_background(_pump, there, accepted)
            _pump(accepted, there)
            answers.join()
            self._drop(accepted, there)

    def _drop(self, *sockets: socket.socket) -> None:
        with self._lock:
            self._open.difference_update(sockets)
            for connection in sockets:
                connection.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy until *source* ends."""
    with suppress(OSError):
        while chunk := source.recv(_CHUNK):
            sink.sendall(chunk)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _in_background(function: Callable[..., object], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


_SIOCSIFADDR = 0x8916
_PR_CAP_AMBIENT, _CLEAR_ALL = 47, 4
_CAPABILITIES_VERSION = 0x2008_0522
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_LOCAL = ("localhost", "127.0.0.1", "::1")
#: The limits that errors of the system tell of.
_ERRORS: dict[int, LimitName] = {
    errno.EFBIG: "file size",
    errno.EROFS: "files",
    errno.ENOMEM: "memory",
}


class ViolationWatch:
    """Notes the first attempt to go beyond the sandbox, and says in Python what it was."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.violation: LimitViolation | None = None
        self._folders = [Path(folder) for folder in (*request["folders"], "/dev")]
        self._limits = request["limits"]
        self._hosts: set[str] | None = None
        self._pairs: set[tuple[str, int]] = set()
        if request["network"] != "any":
            self._hosts = set(_LOCAL)
            for name, address in request["addresses"].items():
                host, _, port = name.rpartition(":")
                self._hosts |= {host, address}
                self._pairs |= {(host, int(port)), (address, int(port))}
        # Only a network of its own counts what this sandbox tries.
        self._counts = self._hosts is not None and not request["kernel"]
        self._sockets_are_refused = self._hosts is not None and request["kernel"]
        self._unrouted = _count_unrouted_packets() if self._counts else 0

    def note(self, limit: LimitName, detail: str) -> None:
        """Note a violation, unless there was one before."""
        if self.violation is None:
            self.violation = LimitViolation(limit=limit, detail=detail[:500])

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit hook of Python.

        Raises:
            PermissionError: the kernel would refuse it, too.
        """
        if event == "open":
            self._check_open(*args[:3])
        elif event == REFUSED:
            self.note("network", f"{args[0]} is not among its destinations")
        elif self._hosts is None:
            return
        elif event == "socket.getaddrinfo" and isinstance(args[0], str):
            if args[0].lower() not in self._hosts and not _is_numeric(args[0]):
                self._refuse(f"{args[0]}:{args[1]}")
        elif event == "socket.__new__":
            # In a network of its own, the address decides.
            if self._sockets_are_refused and args[1] in (socket.AF_INET, socket.AF_INET6):
                self._refuse("any address")
        elif event in ("socket.connect", "socket.sendto") and isinstance(args[1], tuple):
            host, port = args[1][:2]
            if host not in _LOCAL and (host, port) not in self._pairs:
                self._refuse(f"{host}:{port}")

    def note_error(self, error: BaseException) -> None:
        """Note the limit that an error tells of, if it does."""
        number = error.errno if isinstance(error, OSError) else None
        threads = isinstance(error, RuntimeError) and "start new thread" in str(error)
        if isinstance(error, LimitExceeded):
            self.note(error.limit, str(error))
        elif isinstance(error, MemoryError):
            self.note("memory", "it ran out of its memory")
        elif (number == errno.EAGAIN or threads) and self._limits["NPROC"]:
            self.note("processes", "it could not start another process or thread")
        elif number in _ERRORS:
            self.note(_ERRORS[number], str(error))

    def end(self) -> None:
        """Note what programs tried that it has started."""
        if self._counts and _count_unrouted_packets() > self._unrouted:
            self.note("network", "a program tried to reach an address that is no destination")

    def _refuse(self, name: str) -> NoReturn:
        self.note("network", f"{name} is not among its destinations")
        raise PermissionError(f"{name} is not among the destinations of the action")

    def _check_open(self, path: object = None, _mode: object = None, flags: object = 0) -> None:
        if not isinstance(path, str | bytes | os.PathLike) or not isinstance(flags, int):
            return
        text = os.fsdecode(path)
        if not flags & _WRITING or text.startswith("/proc/") or text.endswith(".pyc"):
            return
        # Python writes its caches where it can, and goes on where it cannot.
        whole = Path(os.path.realpath(text))
        if "__pycache__" not in text and not any(whole.is_relative_to(f) for f in self._folders):
            self.note("files", f"{text} is not in one of its folders")
            raise PermissionError(f"{text!r} is not in a folder that the action may write to")


def _is_numeric(host: str) -> bool:
    return host.replace(".", "").isdigit() or ":" in host


def _count_unrouted_packets() -> int:
    """The number of packets that this network had no way for."""
    lines = [line.split() for line in Path("/proc/net/snmp").read_text().splitlines()]
    total = sum(
        int(values[names.index("OutNoRoutes")])
        for names, values in zip(lines[::2], lines[1::2], strict=True)
        if "OutNoRoutes" in names
    )
    later = Path("/proc/net/snmp6")
    lines = [line.split() for line in later.read_text().splitlines()] if later.exists() else []
    return total + sum(int(value) for name, value in lines if name == "Ip6OutNoRoutes")


def run(control: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
    """Confine this process and call the function; the answer."""
    listeners = _listen(request["addresses"])
    _confine(request)
    socket.send_fds(control, [b"."], [listener.fileno() for listener in listeners])
    for listener in listeners:
        listener.close()
    watch = ViolationWatch(request)
    sys.addaudithook(watch.audit)
    module, _, function = request["function"].partition(":")
    try:
        result = getattr(importlib.import_module(module), function)(request["argument"])
        answer = {"answer": result}
    except BaseException as error:  # noqa: BLE001 - the parent reports it
        watch.note_error(error)
        name, text = type(error).__name__, message_of(error)
        answer = {"error": f"{name}: {text}" if text else name}
    watch.end()
    if watch.violation:
        answer["violation"] = watch.violation.to_wire()
    return answer


def _listen(addresses: dict[str, str]) -> list[socket.socket]:
    """A socket for each destination, at the address that stands for it."""
    listeners = []
    for number, (name, address) in enumerate(addresses.items()):
        if not address.startswith("127."):
            _add_address(f"lo:{number}", address)
        listener = socket.create_server((address, int(name.rpartition(":")[2])), backlog=64)
        listeners.append(listener)
    return listeners


def _add_address(interface: str, address: str) -> None:
    """Give our own loopback another address."""
    ifreq = struct.pack(
        "16sHH4s8x", interface.encode(), socket.AF_INET, 0, socket.inet_aton(address)
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        fcntl.ioctl(asking, _SIOCSIFADDR, ifreq)


def _drop_capabilities() -> None:
    """Give up those of root, and those that were needed for the addresses.

    Raises:
        OSError: the kernel does not allow that.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    head = struct.pack("=Ii", _CAPABILITIES_VERSION, 0)
    if libc.capset(head, bytes(24)):
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")


def _confine(request: dict[str, Any]) -> None:
    """Set the limits.

    Raises:
        OSError: the kernel cannot enforce one of them.
    """
    _drop_capabilities()
    network = request["network"]
    if network != "any":
        # A network of its own has no way out; but sockets of files would have one.
        families = () if request["kernel"] else (socket.AF_INET, socket.AF_INET6)
        if not kernel.allow_sockets(families):
            raise OSError(errno.ENOSYS, "sockets cannot be restricted")
    # Bubblewrap shows it no other processes to change.
    if not kernel.keep_others() and request["kernel"]:
        raise OSError(errno.ENOSYS, "other processes cannot be protected")
    if request["kernel"]:
        writes = [*request["folders"], "/dev/null"]
        if not (kernel.write_only_in(writes) and kernel.keep_attributes()):
            raise OSError(errno.ENOSYS, "files cannot be restricted")
    limits: dict[str, int | None] = {**request["limits"], "CORE": 0}
    for name, value in limits.items():
        if value is not None:
            # The second signal for CPU time cannot be caught.
            hard = value + 1 if name == "CPU" else value
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, hard))


def _request(control: socket.socket) -> dict[str, Any]:
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        chunk = control.recv(65536)
        if not chunk:
            sys.exit(1)
        parts.append(chunk)
    request: dict[str, Any] = json.loads(b"".join(parts))
    return request


def main(arguments: Sequence[str]) -> None:
    """Serve one request on the socket of that number, and wait to be ended."""
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    os.register_at_fork(after_in_child=control.close)  # one process answers
    answer = run(control, _request(control))
    control.sendall(json.dumps(answer).encode() + b"\n")
    # The guardian ends us and everything that we have left.
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
