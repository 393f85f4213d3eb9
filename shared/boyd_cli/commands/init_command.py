"""`boyd init`: writes an agent file and a first plugin."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from boyd.errors import ConfigError
from boyd_cli import output
from boyd_cli.templates import load_template

#: What a new folder may be called, as the agent is called so, too.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


@click.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
def init(folder: Path) -> None:
    """Write an agent file and a first plugin.

    They go into FOLDER; existing files are not overwritten.
    """
    name = folder.resolve().name
    if not folder.exists() and not _PLAIN.fullmatch(name):
        problem = f"{name!r} is not a valid agent id: use letters, digits, '.', '_' and '-'"
        raise ConfigError(f"{problem}, as in {_slug(name)}; nothing was written")
    agent, plugin = folder / "agent.toml", folder / "plugins" / "hello.py"
    slug = _slug(name)
    title = re.sub(r"[-_.]+", " ", slug).strip().capitalize()
    texts = {
        agent: load_template("agent.toml").substitute(id=slug, name=title, file=agent.name),
        plugin: load_template("hello.py").substitute(),
    }
    for path in texts:
        if path.exists():
            raise ConfigError(f"{path} already exists; nothing was written")
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
        output.say(f"wrote {path}")
    boyd, reference = shlex.quote(output.command_name()), shlex.quote(str(agent))
    output.say(f"Next: {boyd} check {reference} && {boyd} up {reference}")


def _slug(name: str) -> str:
    plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("._-")
    return plain[:63] or "agent"
