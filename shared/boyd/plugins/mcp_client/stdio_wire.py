"""A program that speaks MCP on its standard input and output, started for one conversation."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

from boyd.models import JsonObject
from boyd.plugins.command import kill_group
from boyd.plugins.mcp_client.mcp_connection import (
    MAX_MESSAGE,
    MAX_RECEIVED,
    Deadline,
    parse_message,
    reply_to,
)
from boyd.plugins.mcp_client.server_failure import ServerFailure
from boyd.plugins.mcp_client.server_options import RemoteServer
from boyd.sandbox.subprocess_call import follow_parent

#: The variables of the worker that a server gets; secrets are among the others.
PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")
#: Bytes kept of the end of what it says on standard error.
_SAID = 1000
_CHUNK = 65_536
#: Seconds in which it may end by itself once its input is closed.
_GRACE = 0.5


class StdioWire:
    """A server as a process group of its own, which does not outlive the conversation."""

    def __init__(self, server: RemoteServer, folder: Path) -> None:
        """Start it; raises `ServerFailure` if that is impossible, `ConfigError` without a secret.

        *folder* is the one it is started in unless its options name another.
        """
        secrets = {name: secret.read() for name, secret in server.secrets.items()}
        own = {name: os.environ[name] for name in PASSED if name in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - from the agent file, no shell
                server.argv,
                cwd=folder / (server.cwd or ""),
                env={**own, **server.env, **secrets},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                # One that ignores the end of its input must not outlive a killed worker.
                preexec_fn=partial(follow_parent, signal.SIGKILL, os.getpid()),
            )
        except (OSError, ValueError) as error:
            raise ServerFailure(f"{server.argv[0]} cannot be started: {error}") from None
        self._selector = selectors.DefaultSelector()
        for stream in (self._in, self._out, self._err):
            os.set_blocking(stream.fileno(), False)
        self._selector.register(self._out, selectors.EVENT_READ)
        self._selector.register(self._err, selectors.EVENT_READ)
        self._buffer = b""
        self._said = b""
        self._received = 0

    @property
    def _in(self) -> IO[bytes]:
        assert self._process.stdin is not None, "it was started with pipes"
        return self._process.stdin

    @property
    def _out(self) -> IO[bytes]:
        assert self._process.stdout is not None, "it was started with pipes"
        return self._process.stdout

    @property
    def _err(self) -> IO[bytes]:
        assert self._process.stderr is not None, "it was started with pipes"
        return self._process.stderr

    def exchange(
        self, message: JsonObject, headers: Mapping[str, str], until: Deadline
    ) -> JsonObject:
        """Send a request and wait for its response; there are no *headers* here."""
        self.send(message, headers, until)
        while True:
            received = parse_message(self._line(until))
            answer = reply_to(received)
            if answer is not None:
                self.send(answer, {}, until)
            elif "method" not in received and received.get("id") == message["id"]:
                return received

    def send(self, message: JsonObject, headers: Mapping[str, str], until: Deadline) -> None:
        """Send a message, and read what the server says meanwhile."""
        left = memoryview(json.dumps(message).encode() + b"\n")
        self._selector.register(self._in, selectors.EVENT_WRITE)
        has_begun = False
        try:
            while left:
                if self._wait(until, has_begun):
                    with suppress(BlockingIOError):
                        left = left[os.write(self._in.fileno(), left) :]
                        has_begun = True
        except OSError:
            raise self._failure(has_begun) from None
        finally:
            self._selector.unregister(self._in)

    def close(self) -> None:
        """End the whole process group, at the latest after a moment."""
        self._selector.close()
        with suppress(OSError):
            self._in.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        kill_group(self._process)
        self._out.close()
        self._err.close()

    def _line(self, until: Deadline) -> bytes:
        """The next line that is not empty."""
        while True:
            line, end, rest = self._buffer.partition(b"\n")
            if end:
                self._buffer = rest
                if line.strip():
                    return line
            elif len(self._buffer) > MAX_MESSAGE:
                raise ServerFailure(f"it sent a message of more than {MAX_MESSAGE} bytes", True)
            else:
                self._wait(until, True)

    def _wait(self, until: Deadline, sent: bool) -> bool:
        """Take in what the server says; True: it can be written to."""
        ready = self._selector.select(until.seconds_left())
        if not ready and not until.seconds_left():
            raise ServerFailure(f"it did not answer in time{self._last_words}", sent)
        writable = False
        for key, _ in ready:
            if key.fileobj is self._in:
                writable = True
            elif key.fileobj is self._out:
                self._hear(os.read(self._out.fileno(), _CHUNK), sent)
            else:
                self._note(os.read(self._err.fileno(), _CHUNK))
        if not until.seconds_left():
            raise ServerFailure(f"it did not answer in time{self._last_words}", sent)
        return writable

    def _hear(self, chunk: bytes, sent: bool) -> None:
        if not chunk:
            raise self._failure(sent)
        self._received += len(chunk)
        self._buffer += chunk
        if self._received > MAX_RECEIVED:
            raise ServerFailure(f"it sent more than {MAX_RECEIVED} bytes", sent)

    def _note(self, chunk: bytes) -> None:
        self._said = (self._said + chunk)[-_SAID:]
        if not chunk:
            self._selector.unregister(self._err)

    def _failure(self, sent: bool) -> ServerFailure:
        with suppress(OSError):
            self._said = (self._said + os.read(self._err.fileno(), _CHUNK))[-_SAID:]
        return ServerFailure(f"it ended, or closed its output{self._last_words}", sent)

    @property
    def _last_words(self) -> str:
        words = " ".join(self._said.decode("utf-8", "replace").split())
        return f"; its last words: {words}" if words else ""
