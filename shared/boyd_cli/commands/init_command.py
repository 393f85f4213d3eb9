"""`boyd init`: writes an agent file for this host, and a first plugin."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import click
from pydantic import TypeAdapter, ValidationError

from boyd.errors import ConfigError
from boyd.plugins.command import UnitName
from boyd_cli import output
from boyd_cli.options import not_empty, words_option
from boyd_cli.templates import load_template

#: What a new folder may be called, as the agent is called so, too.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_NAME = "Name of the agent"
_WATCH = """\
The agent observes processor, memory, load and disk of this host.
What else? Web addresses, systemd units, folders on other disks"""
_NOTIFY = """\
You approve in the console or with `boyd approvals`.
Who is told? Webhooks (https://…), mail (mailto://…)"""

_HTTP_MONITOR = """
# Web addresses: their status, and how long they take. A line may say how to restart what fails
# three times in a row: restart = {{ type = "command", argv = ["systemctl", "restart", "NAME"] }}
[[plugins]]
use = "http-monitor"
[plugins.options]
check_interval = 9
endpoints = [
{}]
"""
_SYSTEMD = """
# Units that failed, or restart again and again. `boyd plugins show systemd` says how to let the
# agent restart them.
[[plugins]]
use = "systemd"
[plugins.options]
interval = 9
units = {}
"""
_NOTIFIER = """
# People and programs that are told of approvals.
[[plugins]]
use = "notifier"
[[plugins.options.groups]]
name = "operators"
recipients = {}
"""


@click.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
@click.option("--name", callback=not_empty, help="Name of the agent; default: that of the folder.")
@words_option("--watch", help="Web address, systemd unit or folder on a disk to watch.")
@words_option("--notify", help="Webhook or other address to tell of approvals.")
def init(folder: Path, name: str | None, watch: list[str], notify: list[str]) -> None:
    """Write an agent file for this host, and a first plugin.

    They go into FOLDER; existing files are not overwritten. The agent observes processor, memory,
    load and disk of this host, and what --watch names. On a terminal it asks for what the options
    leave open.
    """
    agent, plugin = folder / "agent.toml", folder / "plugins" / "hello.py"
    for path in (agent, plugin):
        if path.exists():
            raise ConfigError(f"{path} already exists; nothing was written")
    title, id = (name, _slug(name)) if name else _names_after(folder)
    watch, notify = _check_watch(watch), _check_notify(notify)
    if output.can_ask():
        answer = name or click.prompt(_NAME, default=title)
        title, id = (title, id) if answer == title else (answer, _slug(answer))
        watch = watch or _ask(_WATCH, _check_watch)
        notify = notify or _ask(_NOTIFY, _check_notify)
    values = {
        "id": id,
        "name": _quote(title),
        "file": agent.name,
        "mounts": _quote(["/", *(word for word in watch if word.startswith("/"))]),
        "plugins": _plugins(watch, notify),
    }
    texts = {
        agent: load_template("agent.toml").substitute(values),
        plugin: load_template("hello.py").substitute(),
    }
    try:
        contents = {path: text.encode() for path, text in texts.items()}
    except UnicodeEncodeError as error:
        reason = f"{error.object[error.start]!r} in a name or an address is not UTF-8"
        raise ConfigError(f"{reason}; nothing was written") from None
    for path, content in contents.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(content)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
        output.say(f"wrote {path}")
    boyd, reference = shlex.quote(output.command_name()), shlex.quote(str(agent))
    output.say(f"Next: {boyd} check {reference} && {boyd} up {reference}")


def _names_after(folder: Path) -> tuple[str, str]:
    """The name and the id of an agent in *folder*.

    Raises:
        ConfigError: no agent can be called after a folder that is to be made.
    """
    name = folder.resolve().name
    id = _slug(name)
    if not folder.exists() and not _PLAIN.fullmatch(name):
        problem = f"{name!r} is not a valid agent id: use letters, digits, '.', '_' and '-'"
        raise ConfigError(f"{problem}, as in {id}; nothing was written")
    return re.sub(r"[-_.]+", " ", id).strip().capitalize(), id


def _slug(name: str) -> str:
    plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("._-")
    return plain[:63] or "agent"


def _ask(question: str, check: Callable[[Sequence[str]], list[str]]) -> list[str]:
    """Ask for words until *check* accepts them."""

    def parse(text: str) -> list[str]:
        return check(list(dict.fromkeys(text.replace(",", " ").split())))

    words: list[str] = click.prompt(
        f"{question} [none]", default="", show_default=False, value_proc=parse
    )
    return words


def _check_watch(words: Sequence[str]) -> list[str]:
    """The words, units with their type.

    Raises:
        BadParameter: one is no address, folder or unit.
    """
    for word in words:
        _check_word(word)
    return [word if "/" in word or "." in word else f"{word}.service" for word in words]


def _check_word(word: str) -> None:
    if "://" in word:
        parts = urlsplit(word)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.BadParameter(f"{word!r} is not an http or https address with a host")
    elif "/" in word:
        if not Path(word).is_absolute() or not Path(word).is_dir():
            raise click.BadParameter(f"{word!r} is not the absolute path of a folder")
    else:
        try:
            TypeAdapter(UnitName).validate_python(word)
        except ValidationError:
            raise click.BadParameter(f"{word!r} is not the name of a systemd unit") from None


def _check_notify(words: Sequence[str]) -> list[str]:
    """The words.

    Raises:
        BadParameter: one is not an address that the notifier can use.
    """
    # Imported late: it brings a client of HTTP, which no other command needs to start.
    from boyd.plugins.notifier.message import check_address

    for word in words:
        try:
            check_address(word)
        except ValueError as error:
            raise click.BadParameter(f"{word!r} {error}") from None
    return list(words)


def _plugins(watch: Sequence[str], notify: Sequence[str]) -> str:
    """The plugin tables of the agent file: monitors for *watch*, a notifier for *notify*."""
    urls = [word for word in watch if "://" in word]
    units = [word for word in watch if "/" not in word]
    ids = _endpoint_ids(urls)
    endpoints = [
        f'  {{ id = "{id}", url = {_quote(url)} }},\n' for id, url in zip(ids, urls, strict=True)
    ]
    tables = [
        _HTTP_MONITOR.format("".join(endpoints)) if urls else "",
        _SYSTEMD.format(_quote(units)) if units else "",
        _NOTIFIER.format(_quote(notify)) if notify else "",
    ]
    return "".join(tables)


def _endpoint_ids(urls: Sequence[str]) -> list[str]:
    """An id for each address after its host and path, with a number where others have the same."""
    ids: list[str] = []
    for url in urls:
        parts = urlsplit(url)
        base = _slug(f"{parts.netloc.rpartition('@')[2]}{parts.path}")
        numbered = (f"{base[:60]}-{number}" for number in range(2, len(urls) + 1))
        ids.append(next(id for id in (base, *numbered) if id not in ids))
    return ids


def _quote(value: str | Sequence[str]) -> str:
    """Write a value as TOML: unlike JSON it escapes DEL, and has no escapes of surrogates."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
