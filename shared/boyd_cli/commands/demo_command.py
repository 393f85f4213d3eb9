"""`boyd demo`: the example `watch` in a folder of its own, with everything that it needs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click
import psutil

from boyd.embedded.redis_server import find_program
from boyd.errors import ConfigError
from boyd.plugins.process import Program, Supervised
from boyd.settings.process_settings import DEFAULT_FILE, PREFIX, Settings, load_settings
from boyd_cli import output
from boyd_cli.commands.up_command import free_api, run_deployment

#: The files of the example, and the port of its service in them; the next free one is used.
FILES = ("agent.toml", "service.py", "plugins/watch.py")
PORT = 8765
#: Time for the service to end.
END_SECONDS = 10.0
#: Prefixes of the variables that the demo heeds; it must not touch a deployment that others name.
HEEDED = ("BOYD_API__", "BOYD_EMBEDDED__", "BOYD_LOG_")
SETTINGS = """\
# The settings of `boyd demo`: boyd finds the demo by them when you are in this folder.
state_dir = "state"
"""


@click.command()
@click.argument("folder", default="boyd-demo", type=click.Path(path_type=Path, file_okay=False))
def demo(folder: Path) -> None:
    """Run an example in a folder of its own until Ctrl-C.

    An agent watches a small web service, brings it back when you kill it, and asks before it
    deletes files. Everything is in FOLDER, which you may delete afterwards; with the same FOLDER
    the demo goes on where it stopped.
    """
    for name in list(os.environ):
        if name.startswith(PREFIX) and not name.startswith(HEEDED):
            del os.environ[name]
    find_program(os.environ.get("BOYD_EMBEDDED__SERVER"))
    command = _command_anywhere()
    _write_example(folder)
    state = folder.absolute() / "state"
    # The example keeps the files of its service there.
    os.environ["XDG_STATE_HOME"] = str(state)

    def announce(_settings: Settings, _api_url: str, link: str, _key: str) -> None:
        _say_what_to_try(folder, command, link)

    with _in_folder(folder), _service(state / "boyd-watch" / "service.pid"):
        settings = load_settings({"agents": "agent.toml", "state_dir": state})
        run_deployment(_on_a_free_port(settings), announce)
    output.say(f"stopped; all that is left is the folder {folder}")


def _command_anywhere() -> str:
    """The command as it can be typed in any folder."""
    name = output.command_name()
    return str(Path(name).absolute()) if os.sep in name else name


def _example() -> Traversable:
    """The folder of the example: the wheel has a copy, a clone the original."""
    package = files("boyd_cli")
    copy = package / "watch"
    return copy if copy.is_dir() else Path(str(package)).parents[1] / "examples" / "watch"


def _write_example(folder: Path) -> None:
    """Write the example into *folder*, unless it is there.

    Raises:
        ConfigError: the folder has something else, or cannot be written.
    """
    if (folder / DEFAULT_FILE).exists() and all((folder / name).exists() for name in FILES):
        return
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"{folder} has other files; name a new folder: boyd demo FOLDER")
        port = str(_free_port())
        (folder / "plugins").mkdir(parents=True)
        for name in FILES:
            text = _example().joinpath(name).read_text("utf-8")
            (folder / name).write_text(text.replace(str(PORT), port), "utf-8")
        (folder / DEFAULT_FILE).write_text(SETTINGS, "utf-8")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from None


def _free_port() -> int:
    for port in range(PORT, PORT + 200):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise ConfigError(f"no free port for the service of the demo from {PORT} on")


@contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    """Work in *folder*, where the agent file and the settings are."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _service(pidfile: Path) -> Iterator[None]:
    """End the service of the example, which outlives its agent, with the block."""
    try:
        yield
    finally:
        process = Supervised(Program(argv=["service"], pidfile=pidfile)).find()
        if process is not None:
            process.terminate()
            with suppress(psutil.TimeoutExpired):
                process.wait(END_SECONDS)


def _on_a_free_port(settings: Settings) -> Settings:
    """Replace the default port of the API by a free one if it is in use."""
    if "BOYD_API__PORT" not in os.environ:
        try:
            free_api(settings.api)
        except ConfigError:
            return settings.model_copy(update={"api": settings.api.model_copy(update={"port": 0})})
    return settings


def _say_what_to_try(folder: Path, command: str, link: str) -> None:
    output.say("Open the console; the link signs you in, once:")
    output.say(link)
    output.say("Then, in another terminal:")
    output.say(f"  cd {folder}")
    output.say("  kill $(head -n 1 state/boyd-watch/service.pid)   # the agent brings it back")
    output.say(f"  {command} history                 # what it saw, decided and did")
    output.say(f"  {command} approvals list          # after a minute it asks to delete files")
    output.say("The agent is agent.toml in that folder. Ctrl-C stops everything.")
