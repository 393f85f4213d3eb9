"""The first lines of `boyd up`: what it starts, and how to reach it once it answers."""

from __future__ import annotations

import shlex
from pathlib import Path

from boyd.cli import output
from boyd.cli.typed import boyd_here
from boyd.embedded.runtime import key_file
from boyd.settings import Settings
from boyd.store import masked
from boyd.version import VERSION


def greet(settings: Settings, agents: list[str]) -> None:
    """Print what is being started."""
    noun = "agent" if len(agents) == 1 else "agents"
    output.say(f"boyd {VERSION}: starting {noun} {', '.join(agents)}")
    if settings.redis_url:
        output.say(f"  redis  {masked(settings.redis_url)}")
    output.say(f"  logs   {_home(settings.state_dir / 'logs')}")


def ready(settings: Settings, api_url: str, key: str | None) -> None:
    """Print where the API is, now that it answers; *key* is printed when it is given."""
    path = key_file(settings.state_dir)
    output.say(f"  API    {api_url}")
    output.say(f"  key    {key or f'{_home(path)} (yours alone; boyd finds it by itself)'}")
    for line in _fitted(f'curl --oauth2-bearer "$(cat {_typed(path)})"', f"{api_url}/api/v0/state"):
        output.say(line)
    if settings.api.warning:
        output.say(output.painted(f"warning: {settings.api.warning}", "yellow"))
    output.say(f"Ctrl-C stops everything. In another terminal: {boyd_here()} status --watch")


def _fitted(command: str, url: str) -> list[str]:
    """The command on one line, or on two where a terminal is too narrow."""
    line = f"  try    {command} {url}"
    if len(line) <= output.width():
        return [line]
    return [f"  try    {command} \\", f"           {url}"]


def _home(path: Path) -> str:
    """The path, with `~` for the home folder."""
    here = path.expanduser()
    return f"~/{here.relative_to(Path.home())}" if here.is_relative_to(Path.home()) else str(here)


def _typed(path: Path) -> str:
    """The same as it is typed in a shell."""
    shown = _home(path)
    return f"~/{shlex.quote(shown[2:])}" if shown.startswith("~/") else shlex.quote(shown)
