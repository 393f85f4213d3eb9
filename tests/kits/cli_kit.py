"""`boyd` as somebody uses it: commands in this process and as processes, and an API to ask."""

from __future__ import annotations

import json
import os
import pty
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click
import pytest
from click.testing import CliRunner, Result

from api_kit import application
from boyd import Agent
from boyd.errors import ApiProblem
from boyd.models import Actor, Delivery, Scope, utc_now
from boyd.runtime import Dispatcher
from boyd.settings.process_settings import load_settings
from boyd.store import AgentEntry, Store
from boyd.testing import Lab
from boyd_api.http import services as of_api
from boyd_api.http.server import ApiServer
from boyd_api.http.services import Services
from boyd_cli import boyd
from boyd_cli.output import status_of
from harness import nursery, patient_client, wait_until
from kit import agent
from warm import Forked

#: Seconds that a process may take to say what it is expected to say.
PATIENCE = 180.0
#: A pattern for the age of what was done by a test before.
AGO = r"(just now|\d+ s ago)"
MAKER = Actor(principal="maker")


class Cli:
    """Runs `boyd` in this process, and as one of its own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.environment = {
            "BOYD_STATE_DIR": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            **environment,
        }

    def __call__(self, *arguments: str, status: int = 0, **more: str) -> str:
        """Run a command, which must end with *status*, and return its output."""
        result = self.result(*arguments, **more)
        exit_status = result.exit_code
        if isinstance(result.exception, ApiProblem):
            exit_status = status_of(result.exception)
        assert exit_status == status, (result.output, result.exception)
        problem = f"boyd: {result.exception}" if isinstance(result.exception, ApiProblem) else ""
        return result.output + problem

    def result(self, *arguments: str, stdin: str | None = None, **more: str) -> Result:
        """Run a command and return its result."""
        environment = {**self.environment, **more}
        return CliRunner().invoke(boyd, arguments, env=environment, input=stdin)

    def json(self, *arguments: str, status: int = 0) -> Any:
        """The JSON document that a command prints."""
        result = self.result(*arguments, "-o", "json")
        assert result.exit_code == status, (result.output, result.exception)
        return json.loads(result.stdout)

    def process(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A command that ran as a process of its own."""
        with self.running(*arguments, **more) as command:
            out, errors = command.communicate(PATIENCE)
        return subprocess.CompletedProcess(arguments, command.wait(), out, errors)

    @contextmanager
    def running(self, *arguments: str, **more: str) -> Iterator[Command]:
        """A command that runs as a process of its own, until the block ends."""
        (out, says), (errors, complains) = os.pipe(), os.pipe()
        with os.fdopen(out) as stdout, os.fdopen(errors) as stderr:
            try:
                process = nursery().start(arguments, self._around(**more), says, complains)
            finally:
                os.close(says)
                os.close(complains)
            try:
                yield Command(process, stdout, stderr)
            finally:
                process.kill()
                process.wait()

    @contextmanager
    def terminal(self, *arguments: str, **more: str) -> Iterator[Terminal]:
        """A command on a terminal, until the block ends."""
        ours, theirs = pty.openpty()
        environment = self._around(TERM="xterm", COLUMNS="100", **more)
        process = nursery().start(arguments, environment, theirs, stdin=theirs)
        os.close(theirs)
        try:
            yield Terminal(ours, process)
        finally:
            process.kill()
            process.wait()
            os.close(ours)

    def _around(self, **more: str) -> dict[str, str]:
        return {**os.environ, **self.environment, **more}

    def on_terminal(self, *arguments: str, **more: str) -> str:
        """Run a command on a terminal and return its output."""
        with self.terminal(*arguments, **more) as terminal:
            return terminal.rest()

    @staticmethod
    def argv(arguments: Sequence[str]) -> list[str]:
        """The command line of `boyd` with arguments."""
        return [sys.executable, "-m", "boyd_cli", *arguments]


def leaves(
    group: click.Group = boyd, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its path."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        elif command is not None:
            yield (*path, name), command


class Command:
    """A process that runs a command, and what it prints."""

    def __init__(self, process: Forked, stdout: IO[str], stderr: IO[str]) -> None:
        self.process = process
        self.stdout = stdout
        self.stderr = stderr
        self.wait = process.wait
        self.send_signal = process.send_signal

    def communicate(self, timeout: float) -> tuple[str, str]:
        """All that it prints until it ends: no more than fits into a pipe."""
        self.wait(timeout)
        return self.stdout.read(), self.stderr.read()


class Terminal:
    """A command on a terminal."""

    def __init__(self, ours: int, process: Forked) -> None:
        self._ours = ours
        self.process = process
        self.text = ""

    def says(self, text: str) -> str:
        """Read until it has printed *text*; all that it has printed."""
        while text not in self.text:
            chunk = self._read()
            assert chunk, f"ended before {text!r}: {self.text}"
            self.text += chunk
        return self.text

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._ours, text.encode())

    def rest(self) -> str:
        """Read to the end; all that it has printed."""
        while chunk := self._read():
            self.text += chunk
        return self.text

    def _read(self) -> str:
        if not select.select([self._ours], [], [], PATIENCE)[0]:
            pytest.fail(f"says nothing more after {self.text!r}")
        try:
            return os.read(self._ours, 4096).decode()
        except OSError:  # the other side is closed
            return ""


class Served:
    """An API in this process."""

    def __init__(self, redis_url: str, port: int, dispatcher: Dispatcher | None) -> None:
        settings = load_settings({"redis_url": redis_url, "api": {"threads": 12}})
        self._services = Services(settings, dispatcher=dispatcher)
        listening = socket.create_server(("127.0.0.1", port))
        self.port: int = listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server = ApiServer(application(settings, self._services), listening, settings)
        self._thread = threading.Thread(target=self._server.run, args=[self._services.stop])
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.stop()
        self._thread.join()


@contextmanager
def serving(
    redis_url: str, port: int = 0, dispatcher: Dispatcher | None = None
) -> Iterator[Served]:
    """An API until the block ends; it knows at once what has changed in Redis."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_api, "_FRESH", 0.0)
        served = Served(redis_url, port, dispatcher)
        try:
            yield served
        finally:
            served.stop()


def new_key(redis_url: str, principal: str, *scopes: Scope, **more: Any) -> str:
    """The text of a new key."""
    client = patient_client(redis_url)
    name = more.pop("name", "test")
    _, text = Store(client).api_keys.create(name, principal, scopes, by=MAKER, **more)
    client.close()
    assert text is not None
    return text


def read_until(stream: IO[str] | None, text: str) -> list[str]:
    """The lines that come until one has *text* in it, which must be soon."""
    assert stream is not None
    lines: list[str] = []

    def read() -> None:
        for line in stream:
            lines.append(line.rstrip())
            if text in line:
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(PATIENCE)
    assert lines, f"nothing was said; expected {text!r}"
    assert text in lines[-1], lines
    return lines


def announce(store: Store, announced_agent: Agent) -> None:
    """Announce an agent as its workers do."""
    store.fleet.register(
        AgentEntry(
            id=announced_agent.id,
            name=announced_agent.info.name,
            mode=announced_agent.settings.mode,
            loop_interval=announced_agent.settings.loop_interval,
            schedule=announced_agent.settings.schedule,
            timezone=announced_agent.settings.timezone,
            plugins=list(announced_agent.host.plugins),
            fingerprint=announced_agent.fingerprint,
            catalog=announced_agent.host.catalog,
        )
    )


def lab_of(store: Store, *parts: Any, **settings: Any) -> Lab:
    """An agent `test` of *parts* with an imaginary worker, announced."""
    new_agent = agent(*parts, **settings)
    announce(store, new_agent)
    return Lab(new_agent, client=store.client, post=receive)


def receive(*_: object) -> Delivery:
    """Receive a callback, without a network."""
    return Delivery(at=utc_now(), ok=True, status=204, duration=1.0)


@contextmanager
def working(lab: Lab) -> Iterator[None]:
    """A worker that takes the first iteration that somebody else begins."""

    def work() -> None:
        record = wait_until(lab.store.iterations.current)
        lab.dispatcher.send(lab.agent.id, record.iteration, 1, "start")
        lab.deliver()

    with beside(work):
        yield


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Do *work* in another thread while the block runs."""
    worker = threading.Thread(target=work)
    worker.start()
    yield
    worker.join()
