"""`boyd up`, a complete deployment on one machine, and `boyd open`, its console in a browser."""

from __future__ import annotations

import importlib
import os
import shlex
import signal
import socket
import sys
import time
import tomllib
import webbrowser
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from importlib.metadata import entry_points
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from boyd.agent import load_agents
from boyd.embedded.child import CAN_FORK, ChildSpec, log_path
from boyd.embedded.redis_cluster import masters_in, redis_cluster
from boyd.embedded.redis_server import redis_server
from boyd.embedded.state_folder import (
    RunningDeployment,
    approval_secret_file,
    archive_of,
    key_file,
    publish_runtime,
    read_key,
    state_lock,
    write_private,
)
from boyd.embedded.supervisor import Supervisor
from boyd.errors import INIT_FAILED, BoydError, ConfigError, StoreError
from boyd.models import SCOPES, Event
from boyd.models.responses import LoginLink, NewKey
from boyd.settings.process_settings import ApiSettings, Settings
from boyd.store import Store, connect, mask_url, translate_errors
from boyd.store.api_keys import id_of
from boyd.store.login_sessions import login_path
from boyd.text.version import VERSION
from boyd_cli import main, output
from boyd_cli.api_access import Api, actor, user
from boyd_cli.commands.export_commands import check_installed
from boyd_cli.options import deployment_api_options, settings_options, with_agents
from boyd_cli.views import event_view, iteration_view

if TYPE_CHECKING:
    from boyd_cli.client import Client


def greet(settings: Settings, agents: list[str], nodes: int | None = None) -> None:
    """Print what is starting."""
    noun = "agent" if len(agents) == 1 else "agents"
    output.say(f"boyd {VERSION}: starting {noun} {', '.join(agents)}")
    if settings.redis_url:
        output.say(f"  redis  {mask_url(settings.redis_url)}")
    if nodes:
        output.say(f"  redis  a cluster of {nodes} masters, each with a replica")
    output.say(f"  logs   {_home(settings.state_dir / 'logs')}")


#: Prints where a deployment is: its settings, the URL of the API, a link to the console, the key.
Announce = Callable[[Settings, str, str, str], None]


def announce(settings: Settings, api_url: str, link: str, key: str, show_key: bool) -> None:
    """Print a link to the console and the address of the API, and *key* or where it is."""
    output.say(f"  open   {link}")
    path = _home(key_file(settings.state_dir))
    quoted = f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)
    command, url = f'curl --oauth2-bearer "$(cat {quoted})"', f"{api_url}/api/v0/state"
    line = f"  try    {command} {url}"
    output.say(f"  API    {api_url}")
    where = f"{path} (readable only by you; boyd finds it automatically)"
    output.say(f"  key    {key if show_key else where}")
    output.say(line if len(line) <= output.width() else f"  try    {command} \\\n           {url}")
    if settings.api.warning:
        output.say(output.paint(f"warning: {settings.api.warning}", "yellow"))
    output.say(
        f"Ctrl-C stops everything. In another terminal: {output.command_name()} status --watch"
    )


def _home(path: Path) -> str:
    """The path, with `~` for the home folder."""
    here, home = path.expanduser(), os.environ.get("HOME")
    return f"~/{here.relative_to(home)}" if home and here.is_relative_to(home) else str(here)


#: Seconds for a worker to start and announce itself.
START = 60.0
#: Seconds between two checks for events.
LOOK = 0.5
#: Seconds between two checks that Redis still has the key of this command.
KEY_CHECK = 5.0


@click.command()
@click.argument("agents", nargs=-1, metavar="[AGENT]...")
@click.option("--show-key", is_flag=True, help="Print the API key, not only its location.")
@click.option(
    "--redis-nodes",
    type=click.IntRange(3, 20),
    metavar="N",
    help="Keep the state on a Redis Cluster of N masters with a replica each.",
)
@settings_options
def up(
    settings: Settings, agents: tuple[str, ...], show_key: bool, redis_nodes: int | None
) -> None:
    """Run agents on this machine until Ctrl-C.

    Starts Redis, workers, beat, the API and the archive, and with a collector the
    export of traces. AGENT is an agent file or module:agent.
    BOYD_REDIS_URL replaces the embedded Redis. Data, logs and your key for the API are in the state
    folder (BOYD_STATE_DIR).
    """
    if not agents and not settings.agents and Path("agent.toml").exists():
        agents = ("agent.toml",)
    run_deployment(with_agents(settings, agents), partial(announce, show_key=show_key), redis_nodes)


def run_deployment(settings: Settings, announce: Announce, nodes: int | None = None) -> None:
    """Run the agents of *settings* on this machine until a signal requests a stop.

    Args:
        settings: the settings.
        announce: called when the API answers, with the settings, its URL, a link and the key.
        nodes: the masters of a Redis Cluster to start; None for one Redis.

    Raises:
        BoydError: something cannot start.
    """
    if settings.traces.is_exporting:
        check_installed()
    names, plugins = _inspect_agents(settings.agents)
    if len(names) == 1 and not settings.agent:
        settings = settings.model_copy(update={"agent": names[0]})
    with state_lock(settings.state_dir):
        settings = settings.model_copy(update={"api": free_api(settings.api)})
        with (
            Supervisor(output.say) as supervisor,
            _redis(settings, supervisor, nodes) as running,
        ):
            if running is not None:
                greet(settings, names, nodes)
                if CAN_FORK:
                    _preload([*_MODULES, *_own_pages(), *plugins])
                _run(running, supervisor, names, announce)


#: The ids of agents, and the modules of the built-in plugins that they use.
_Inspection = tuple[list[str], list[str]]


def _inspect_agents(references: Sequence[str]) -> _Inspection:
    """Load the agents elsewhere, as no plugin of theirs may run in what forks workers.

    Raises:
        ConfigError: an agent or one of its plugins cannot be used.
    """
    if not CAN_FORK:
        return list(load_agents(references)), []
    fork = get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=_send_inspection, args=(sender, references))
    process.start()
    sender.close()
    try:
        answer = receiver.recv()
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGINT:
            raise KeyboardInterrupt from None
        raise ConfigError("the process that loads the agents has died") from None
    finally:
        process.kill()  # threads of plugins may still run
        process.join()
    if isinstance(answer, str):
        raise ConfigError(answer)
    inspection: _Inspection = answer
    return inspection


def _send_inspection(sender: Connection, references: Sequence[str]) -> None:
    """Send what `_inspect_agents` returns, or the message of an error."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        names = list(load_agents(references))
        sender.send((names, [name for name in sys.modules if name.startswith("boyd.plugins.")]))
    except BoydError as error:
        sender.send(str(error))


def free_api(api: ApiSettings) -> ApiSettings:
    """The API's address with a port that is free now.

    Raises:
        ConfigError: the port is in use, or the address is not ours.
    """
    try:
        with socket.create_server((api.host, api.port)) as listening:
            return api.model_copy(update={"port": listening.getsockname()[1]})
    except OSError as error:
        # The system's own message, without the address that Python adds.
        number = error.errno or 0
        message = os.strerror(number) if number > 0 else error.strerror or str(error)
        reason = f"{message}; choose another with BOYD_API__PORT"
        raise ConfigError(f"the API cannot listen on {api.host}:{api.port}: {reason}") from None


@contextmanager
def _redis(
    settings: Settings, supervisor: Supervisor, nodes: int | None
) -> Iterator[Settings | None]:
    """Yield settings with a Redis that answers; None if a stop was requested meanwhile.

    Raises:
        ConfigError: the state folder has data of another kind of Redis.
    """
    state, kind = settings.state_dir, settings.embedded.server
    if settings.redis_url:
        if nodes:
            raise ConfigError("--redis-nodes starts a Redis: unset BOYD_REDIS_URL")
        with translate_errors():
            connect(settings.redis_url).ping()
        yield settings
        return
    if (before := _nodes_of(state)) not in (None, nodes or 0):
        owner = f"a cluster of {before} masters" if before else "one Redis"
        advice = f"use --redis-nodes {before}" if before else "leave out --redis-nodes"
        raise ConfigError(f"{state} has data of {owner}: {advice}, or another BOYD_STATE_DIR")
    if nodes:
        with redis_cluster(state, nodes, program_name=kind) as cluster:
            urls = {"redis_url": cluster.url, "broker_url": cluster.broker.url}
            yield settings.model_copy(update=urls) if cluster.start(supervisor) else None
        return
    with redis_server(state, program_name=kind) as server:
        changed = settings.model_copy(update={"redis_url": server.url})
        yield changed if server.start(supervisor) else None


def _nodes_of(state: Path) -> int | None:
    """The masters of the cluster with the data in a state folder, 0 for one Redis, or None."""
    return masters_in(state) or (0 if (state / "redis").exists() else None)


def _run(settings: Settings, supervisor: Supervisor, agents: list[str], announce: Announce) -> None:
    url = settings.redis_url
    assert url is not None
    store = Store(connect(url))
    watch = DeploymentWatch(store, agents, settings)
    api_url = _local_url(settings.api)
    key = _own_key(store, settings.state_dir)
    workers, others = _children(settings)
    before = {worker.name for worker in store.fleet.workers()}
    for child in workers:
        supervisor.start(child)
    if not supervisor.wait_until("act", lambda: _workers_ready(store, before), START):
        return
    watch.look()  # from here on, so that the first iteration is shown when the API answers
    for child in others:
        supervisor.start(child)
    if not supervisor.wait_until("api", lambda: _answers(api_url), START):
        return
    runtime = RunningDeployment(
        redis_url=url, broker_url=settings.broker_url, api_url=api_url, agent=settings.agent
    )
    with publish_runtime(settings.state_dir, runtime):
        announce(settings, api_url, _login_link(store, api_url, key), key)
        supervisor.run(watch.look, every=LOOK)
    output.say("stopping")


#: What the children import, directly or later.
_MODULES = (
    *("boyd_worker.worker", "boyd_worker.beat", "boyd_worker.worker_commands"),
    *("boyd_api.app", "boyd_api.commands", "boyd_api.http.server"),
    *("boyd.export.archive.copier", "boyd.export.archive.database"),
    *("celery.app.amqp", "celery.app.control", "celery.app.events", "celery.app.log"),
    *("celery.backends.base", "celery.concurrency.prefork", "celery.concurrency.thread"),
    *("celery.fixups.django", "celery.worker.autoscale", "celery.worker.components"),
    *("celery.worker.consumer", "celery.worker.control", "celery.worker.strategy"),
    *("kombu.asynchronous.hub", "kombu.transport.redis"),
)


def _own_pages() -> list[str]:
    """List the modules with which Boyd itself adds pages to the console.

    Those of other distributions may start threads, and a process with threads must not fork.
    """
    points = entry_points(group="boyd.pages")
    return [point.module for point in points if point.dist and point.dist.name == "boyd"]


def _preload(modules: Iterable[str]) -> None:
    """Import what the children need, so that they share its memory and start at once."""
    for name in modules:
        # The process that needs a missing one says so itself.
        with suppress(ImportError):
            importlib.import_module(name)


def _run_command(arguments: Sequence[str]) -> None:
    sys.argv = [sys.argv[0], *arguments]
    main()


#: Seconds without an action after which the act worker ends its processes, unless it is set.
_IDLE_TIMEOUT = 300.0


def _children(settings: Settings) -> tuple[list[ChildSpec], list[ChildSpec]]:
    """The workers, and the children that start after them."""
    env = {
        **os.environ,
        "BOYD_REDIS_URL": settings.redis_url or "",
        "BOYD_AGENTS": ",".join(settings.agents),
        "BOYD_LOG_LEVEL": settings.log_level,
        "BOYD_API__HOST": settings.api.host,
        "BOYD_API__PORT": str(settings.api.port),
        "BOYD_WORKER__IDLE_TIMEOUT": str(settings.worker.idle_timeout or _IDLE_TIMEOUT),
        "BOYD_API__URL": settings.api.url or _local_url(settings.api),
    }
    if settings.approval_secret is None:
        env["BOYD_APPROVAL_SECRET_FILE"] = str(approval_secret_file(settings.state_dir))
    if not settings.archive_url:
        env["BOYD_ARCHIVE_URL"] = archive_of(settings.state_dir)
    if settings.broker_url:
        env["BOYD_BROKER_URL"] = settings.broker_url
    if settings.agent:
        env["BOYD_AGENT"] = settings.agent
    if settings.traces.endpoint:
        env["BOYD_TRACES__ENDPOINT"] = settings.traces.endpoint
    commands = {
        "worker": ["worker", "-Q", "loop,observe,host,callback,think"],
        "act": ["worker", "-Q", "act", "--pool", "prefork", "--concurrency", "2"],
        "beat": ["beat", "--also", "archive"],
        "api": ["api"],
    }
    if settings.traces.is_exporting:
        commands["beat"] += ["--also", "traces"]
    children = [
        ChildSpec(
            name,
            (sys.executable, "-P", "-m", "boyd_cli", *arguments),
            log_path(settings.state_dir, name),
            main=partial(_run_command, arguments),
            env=env,
            fatal=frozenset({INIT_FAILED}),
        )
        for name, arguments in commands.items()
    ]
    return children[:2], children[2:]


def _local_url(api: ApiSettings) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(api.host, api.host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{api.port}"


def _own_key(store: Store, state: Path) -> str:
    """The key of the last start, or a new one if Redis has lost it."""
    last_key = read_key(state)
    if last_key is not None and store.api_keys.admit(last_key, rate=100, burst=100).key is not None:
        return last_key
    _, text = store.api_keys.create("boyd up", user(), SCOPES, by=actor(), person=True)
    assert text is not None, "a key with a new id has a text"
    write_private(key_file(state), text + "\n")
    return text


def _login_link(store: Store, api_url: str, key: str) -> str:
    """A link that opens the console, signed in with *key*, once."""
    return api_url + login_path(store.login_sessions.create_link(id_of(key)))


def _workers_ready(store: Store, before: Collection[str]) -> bool:
    """Check that workers serve all queues besides those *before*, which others may have started."""
    try:
        workers = [worker for worker in store.fleet.workers() if worker.name not in before]
    except StoreError:
        return False
    served = {queue for worker in workers for queue in worker.queues}
    return {"loop", "observe", "act"} <= served


def _answers(api_url: str) -> bool:
    parts = urlsplit(api_url)
    assert parts.hostname is not None
    connection = HTTPConnection(parts.hostname, parts.port, timeout=1.0)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


#: Events that `boyd up` prints beside iterations: answers of people, executions and verdicts.
_NEWS = {
    *("approval.approved", "approval.denied", "approval.withdrawn", "approval.expired"),
    *("approval.executed", "call.executed", "execution.verified", "procedure.executed"),
}


def is_news(event: Event) -> bool:
    """Check whether to print an event; of procedures on their way only that they are stopped."""
    is_stopped = str(event.data.get("progress", "")).startswith("stopped")
    return event.kind in _NEWS or (event.kind == "procedure.changed" and is_stopped)


class AgentFiles:
    """Tells when agent files, or plugins in their folders, are no longer those that run."""

    def __init__(self, references: Sequence[str]) -> None:
        self._files = [Path(name) for name in references if name.endswith(".toml")]
        self._folders = [folder for file in self._files for folder in _plugin_folders(file)]
        self._stamps = self._read()

    def look(self) -> None:
        """Print which files have changed since the last call."""
        before, self._stamps = self._stamps, self._read()
        either = [*self._stamps, *(before.keys() - self._stamps.keys())]
        changed = [str(path) for path in either if before.get(path) != self._stamps.get(path)]
        if changed:
            verb = "has" if len(changed) == 1 else "have"
            output.say(
                f"{' and '.join(changed)} {verb} changed: what runs is as before, "
                "until you stop this with Ctrl-C and start it again"
            )

    def _read(self) -> dict[Path, tuple[int, int]]:
        """Modification times and sizes of the files that exist."""
        stamps = {}
        plugins = [path for folder in self._folders for path in sorted(folder.glob("*.py"))]
        for path in (*self._files, *plugins):
            with suppress(OSError):
                state = path.stat()
                stamps[path] = (state.st_mtime_ns, state.st_size)
        return stamps


def _plugin_folders(file: Path) -> list[Path]:
    try:
        folder = tomllib.loads(file.read_text()).get("plugins_dir")
    except (OSError, ValueError):
        return []  # whoever loads the agent says why
    return [file.parent / folder] if isinstance(folder, str) else []


class DeploymentWatch:
    """Prints a line for each finished iteration, answer of a person, and what follows from it."""

    def __init__(self, store: Store, agents: list[str], settings: Settings) -> None:
        """Watch the *agents* from now on."""
        self._store = store
        self._state = settings.state_dir
        self._files = AgentFiles(settings.agents)
        self._key_checked_at = time.monotonic()
        self._events = store.events(agents)
        self._answers = True
        self._latest: tuple[str, Mapping[str, object]] | None = None

    def look(self) -> None:
        """Print what has happened since the last call."""
        self._files.look()
        try:
            for agent_id, event in self._events.wait(0):
                if event.kind in ("iteration.completed", "iteration.failed"):
                    history = self._store.agent(agent_id).history
                    result = history.get(int(str(event.data["iteration"])))
                    if result:
                        output.say(iteration_view.paint_iteration(result))
                elif is_news(event) and (agent_id, event.data) != self._latest:
                    self._latest = (agent_id, event.data)
                    output.say(event_view.plain_line(agent_id, self._with_call(agent_id, event)))
            self._keep_key()
            self._answers = True
        except StoreError as error:
            if self._answers:
                output.say(str(error))
            self._answers = False

    def _with_call(self, agent_id: str, event: Event) -> Event:
        """The event of a call with what was called, and the approval that it has asked for."""
        id = event.data.get("call")
        call = self._store.agent(agent_id).calls.get(str(id)) if id else None
        if call is None:
            return event
        more = {"kind": call.kind, "action": call.action, "approval": call.approval_id}
        return event.patched({"data": {**event.data, **more}})

    def _keep_key(self) -> None:
        """Replace a key that is no longer valid; only an owner of Redis runs this command."""
        if time.monotonic() - self._key_checked_at < KEY_CHECK:
            return
        self._key_checked_at = time.monotonic()
        if not self._state.is_dir():
            raise ConfigError(f"{self._state} was deleted, with all data: start it again")
        before = read_key(self._state)
        if _own_key(self._store, self._state) != before:
            reason = "Redis has lost the key, or it was revoked"
            output.say(f"{reason}; a new one is in {key_file(self._state)}")


#: The name and principal of the keys of displays.
_KIOSK = {"name": "kiosk", "principal": "kiosk"}


@click.command("open")
@click.option("--print", "only_print", is_flag=True, help="Print the link, and open no browser.")
@click.option("--kiosk", is_flag=True, help="Print a link that signs in a display on a wall.")
@deployment_api_options
def open_console(api: Api, only_print: bool, kiosk: bool) -> None:
    """Open the console, signed in with your key.

    The link works once, and only for a few minutes. With --kiosk it signs in a display that shows
    the overview and can do nothing else, with a key of its own.
    """
    client = _kiosk_client(api) if kiosk else api.deployment
    link = client.post("/login-links", LoginLink)
    if link.path is None:
        output.stop(output.FAILED, "the link was lost on the way: try again")
    url = f"{api.url}{link.path}"
    output.say(url)
    if not (only_print or kiosk) and _has_screen():
        webbrowser.open(url)


def _kiosk_client(api: Api) -> Client:
    """Create a key that may only show the overview, and use it."""
    from boyd_cli.client import Client

    key = api.deployment.post("/keys", NewKey, {**_KIOSK, "scopes": ["kiosk"]})
    if key.key is None:
        output.stop(output.FAILED, f"key {key.id} was created, but its text was lost: revoke it")
    revoke = f"`{output.command_name()} keys revoke {key.id}`"
    output.note(f"Open this on the display, within 15 minutes; {revoke} ends it:")
    return Client(api.url, key.key)


def _has_screen() -> bool:
    """Check that a browser would open in a window, not in this terminal."""
    return "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ or sys.platform == "darwin"
