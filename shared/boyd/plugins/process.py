"""The plugin `process`: it starts, restarts and signals processes on the host of the worker."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import psutil
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from boyd.models import JsonObject, Model, Observation
from boyd.plugin import Action, Context, Observer, Plugin
from boyd.plugins.command import (
    SYSTEMCTL_TIMEOUT,
    CommandFailed,
    Systemctl,
    UnitName,
    environment,
    kill_group,
    start,
)

#: Tolerance in seconds for creation times: psutil derives them from a boot time that moves when the
#: clock is set.
SAME_TIME = 2.0

SignalName = Literal["HUP", "INT", "QUIT", "TERM", "KILL", "USR1", "USR2", "STOP", "CONT"]
HomePath = Annotated[Path, AfterValidator(Path.expanduser)]
ProcessName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Program(BaseModel):
    """A process to manage; times in seconds, relative paths from the folder of the worker.

    Attributes:
        argv: the program and its arguments, without a shell.
        cwd: the folder it is started in; absent: that of the worker.
        pidfile: contains the process id and, in the second line, its creation time.
        env: additional environment variables.
        log: a file to append the output to.
        settle: time it must run to count as started.
        stop_timeout: time between TERM and KILL.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    argv: list[str] = Field(min_length=1)
    pidfile: HomePath
    cwd: HomePath | None = None
    env: dict[str, str] = Field(default_factory=dict)
    log: HomePath | None = None
    settle: float = Field(default=0.5, ge=0, le=10)
    stop_timeout: float = Field(default=10.0, gt=0, le=300)


class StartFailed(Exception):
    """The process could not be started, or ended immediately."""


class Supervised:
    """A process that outlives its worker and is found through its pidfile."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def find(self) -> psutil.Process | None:
        """The process, if it is alive; never another one that reuses its id."""
        try:
            pid, created = self.program.pidfile.read_text().split()
            process = psutil.Process(int(pid))
            same = abs(process.create_time() - float(created)) < SAME_TIME
            return process if same and _alive(process) else None
        except (OSError, ValueError, psutil.Error):
            return None

    def start(self) -> tuple[int, bool]:
        """Start it unless it runs; its process id, and whether this call started it.

        Like `restart`, it raises `StartFailed` if the process cannot be started or ends
        immediately.
        """
        with self._alone():
            running = self.find()
            return (running.pid, False) if running else (self._spawn(), True)

    def restart(self) -> int:
        """Stop it if it runs and start it; returns its new process id."""
        with self._alone():
            self._stop()
            return self._spawn()

    def send(self, name: SignalName) -> int:
        """Send a signal; its process id. Raises `ProcessLookupError` if it is not running."""
        process = self.find()
        if process is None:
            raise ProcessLookupError("the process is not running")
        process.send_signal(getattr(signal, f"SIG{name}"))
        return process.pid

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other workers on this host from starting or stopping it concurrently."""
        pidfile = self.program.pidfile
        pidfile.parent.mkdir(parents=True, exist_ok=True)
        with pidfile.with_name(f"{pidfile.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _spawn(self) -> int:
        child = self._popen()
        try:
            created = psutil.Process(child.pid).create_time()
            _write(self.program.pidfile, f"{child.pid}\n{created!r}\n")
        except OSError as error:
            # Nobody would find it without its pidfile, and the next start would make another one.
            kill_group(child)
            raise StartFailed(f"its pidfile cannot be written: {error}") from None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = child.wait(self.program.settle)
            raise StartFailed(f"{self.program.argv[0]} ended immediately with code {code}")
        # While we live, someone must wait for the child, or it becomes a zombie when it ends.
        threading.Thread(target=child.wait, name=f"reap-{child.pid}", daemon=True).start()
        return child.pid

    def _popen(self) -> subprocess.Popen[bytes]:
        program = self.program
        with _output(program.log) as output:
            try:
                return start(program.argv, program.cwd, {**environment(), **program.env}, output)
            except CommandFailed as error:
                raise StartFailed(str(error)) from None

    def _stop(self) -> None:
        process = self.find()
        if process is None:
            return
        _signal_group(process, signal.SIGTERM)
        _wait(process, self.program.stop_timeout)
        # Even if the leader ended in time, another member of its group may still run.
        _signal_group(process, signal.SIGKILL)
        if not _wait(process, self.program.stop_timeout):
            raise StartFailed(f"process {process.pid} does not end, even when killed")


class NameParams(Model):
    """The name of a process or unit."""

    name: str = Field(min_length=1, description="a process or unit named in the options")


class SignalParams(NameParams):
    """A signal, and the process or unit to send it to."""

    signal: SignalName


class ProcessControl(Plugin):
    """Starts, restarts and signals the processes and systemd units named in its options.

    A process runs in its own session and outlives the worker. Everything happens on the host of the
    worker: with several hosts, set `queue` to one that only workers on the right host consume.
    """

    id = "process"

    class Options(Plugin.Options):
        """The plugin's options.

        Attributes:
            processes: the processes by name.
            units: the systemd units to manage.
            user: use the systemd of the user instead of the system's.
            queue: the queue of the workers on the right host; any worker if absent.
            interval: seconds between checks in continuous mode.
        """

        processes: dict[ProcessName, Program] = Field(default_factory=dict)
        units: list[UnitName] = Field(default_factory=list)
        user: bool = False
        queue: str | None = None
        interval: float = Field(default=30.0, gt=0)

        @model_validator(mode="after")
        def _distinct(self) -> ProcessControl.Options:
            both = sorted(set(self.processes) & set(self.units))
            if both:
                raise ValueError(f"names of both a process and a unit: {', '.join(both)}")
            return self

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._systemctl = Systemctl(user=self.options.user)
        programs = self.options.processes
        self._processes = {name: Supervised(program) for name, program in programs.items()}
        limits = [2 * program.stop_timeout + program.settle for program in programs.values()]
        common = {"timeout": max([*limits, SYSTEMCTL_TIMEOUT]) + 5.0, "target": "name"}
        common["queue"] = self.options.queue
        self.components = (
            Observer(
                name="alive",
                description="Check which processes and units are alive.",
                interval=self.options.interval,
                queue=self.options.queue,
                observe=self.alive,
            ),
            Action(
                name="start",
                description="Start a process or unit unless it runs.",
                risk="low",
                idempotent=True,
                execute=self.start,
                dry_run=self._would_start,
                **common,
            ),
            Action(
                name="restart",
                description="Stop a process or unit and start it again.",
                risk="medium",
                execute=self.restart,
                dry_run=self._would_restart,
                **common,
            ),
            Action(
                name="signal",
                description="Send a signal to a process or unit.",
                risk="high",
                reversibility="irreversible",
                execute=self.signal,
                dry_run=self._would_signal,
                **common,
            ),
        )

    def alive(self, ctx: Context) -> list[Observation]:
        """Observe the state of each process and unit."""
        states: list[tuple[str, str, bool, JsonObject]] = []
        for name, process in self._processes.items():
            running = process.find()
            states.append(
                (name, "process", running is not None, {"pid": running.pid} if running else {})
            )
        states += [(name, "unit", *self._unit_state(name)) for name in self.options.units]
        return [
            Observation(
                source=f"{self.id}/{name}",
                type="state",
                severity="info" if alive else "error",
                timestamp=ctx.now(),
                data={"name": name, "kind": kind, "alive": alive, **more},
            )
            for name, kind, alive, more in states
        ]

    def start(self, params: NameParams) -> JsonObject:
        """Start a process or unit unless it runs."""
        process = self._find(params.name)
        if process is None:
            return {"output": self._systemctl.check_call("start", "--", params.name).output}
        pid, started = process.start()
        return {"pid": pid, "started": started}

    def restart(self, params: NameParams) -> JsonObject:
        """Stop a process or unit and start it again."""
        process = self._find(params.name)
        if process is None:
            return {"output": self._systemctl.check_call("restart", "--", params.name).output}
        return {"pid": process.restart()}

    def signal(self, params: SignalParams) -> JsonObject:
        """Send a signal to a process or to the main process of a unit."""
        process = self._find(params.name)
        if process is not None:
            return {"pid": process.send(params.signal)}
        options = (f"--signal=SIG{params.signal}", "--kill-who=main")
        return {"output": self._systemctl.check_call("kill", *options, "--", params.name).output}

    def _would_start(self, params: NameParams) -> str:
        process = self._find(params.name)
        if process is None:
            return f"Would start the unit {params.name}"
        running = process.find()
        if running:
            return f"Would do nothing: {params.name} runs with process id {running.pid}"
        return f"Would start {process.program.argv}"

    def _would_restart(self, params: NameParams) -> str:
        process = self._find(params.name)
        if process is None:
            return f"Would restart the unit {params.name}"
        running = process.find()
        stop = f"stop process {running.pid} and " if running else ""
        return f"Would {stop}start {process.program.argv}"

    def _would_signal(self, params: SignalParams) -> str:
        self._find(params.name)
        return f"Would send {params.signal} to {params.name}"

    def _find(self, name: str) -> Supervised | None:
        """The process with that name; None if it is a unit."""
        if name in self._processes or name in self.options.units:
            return self._processes.get(name)
        names = ", ".join([*self._processes, *self.options.units]) or "none"
        raise LookupError(f"no process or unit {name!r} in the options; known: {names}")

    def _unit_state(self, unit: str) -> tuple[bool, JsonObject]:
        # Not checked: the exit code is not 0 for an inactive unit.
        try:
            finished = self._systemctl.call("is-active", "--", unit, timeout=5.0)
        except CommandFailed as error:
            return False, {"error": str(error)}
        return finished.code == 0, {"state": finished.output}


def _write(path: Path, text: str) -> None:
    """Write a file atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _output(log: Path | None) -> IO[bytes]:
    path = log or Path(os.devnull)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("ab")


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _wait(process: psutil.Process, seconds: float) -> bool:
    """Wait for a process, not necessarily our child; returns whether it ended in time."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(psutil.NoSuchProcess):
        while _alive(process):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
    return True


def _signal_group(leader: psutil.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader.pid, number)
