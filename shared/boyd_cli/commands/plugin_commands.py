"""`boyd plugins …` and `boyd mcp …`: installed plugins, new ones, and locked tools."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boyd.agent import load_agent
from boyd.errors import BoydError, ConfigError, PluginError
from boyd.plugin.discovery import find_entry_point
from boyd.text.version import VERSION
from boyd_cli import output
from boyd_cli.options import output_option
from boyd_cli.output import label, prose, sentence, whole
from boyd_cli.templates import load_template

if TYPE_CHECKING:
    from boyd.plugin.installed_plugins import (
        InstalledPlugin,
        OfferedAction,
        PluginComponent,
        PluginDescription,
    )
    from boyd.plugins.mcp_client import McpTools


_LIST = [
    label("plugin"),
    label("package", drop=2),
    whole("version", drop=3),
    label("state", least=20),
    sentence("description", drop=1),
]
OPTIONS = [
    label("option", least=16),
    label("type", drop=2),
    label("default", drop=1),
    prose("meaning"),
]
ACTIONS = [label("action", least=24), prose("what it does, and may do")]


#: Names of plugins that are to be published, and the characters of the longest.
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST = 40
_RIGHTS = "It reads the size of the disk, and removes files of the folder after an approval."
_CONNECTOR_RIGHTS = """\
It only reads. An action exists once its table is in the agent file, with credentials of its own:

```toml
[plugins.options.actions.set_switch]
token = { file = "/run/secrets/token" }
```"""


@click.group()
def plugins() -> None:
    """Show the installed plugins, and write the package of a new one."""


@plugins.command("list")
@click.option("--load", is_flag=True, help="Also import each plugin, and say why if that fails.")
@output_option
def list_(form: str, *, load: bool) -> None:
    """List the plugins of all installed packages.

    None is imported without --load. Those of a `plugins_dir` are shown by `boyd check`.
    """
    from boyd.plugin.installed_plugins import installed_plugins

    listed = installed_plugins()
    if load:
        listed = [_load(plugin) for plugin in listed]
    rows = ([p.name, p.package, p.version, _state(p), p.summary] for p in listed)
    output.print_list(form, listed, _LIST, rows, "No plugin is installed.")


def _load(plugin: InstalledPlugin) -> InstalledPlugin:
    from boyd.plugin.discovery import find_plugin

    try:
        find_plugin(plugin.name)
    except BoydError as error:
        reason = error.reason if isinstance(error, PluginError) else str(error)
        return plugin.model_copy(update={"error": reason})
    return plugin


def _state(plugin: InstalledPlugin) -> str:
    if plugin.missing:
        extra = f"{plugin.package}[{plugin.extra}]"
        return f"needs {extra}: {', '.join(plugin.missing)}"
    return f"failed: {plugin.error}" if plugin.error else "ok"


@plugins.command()
@click.argument("name")
@output_option
def show(name: str, form: str) -> None:
    """Show a plugin in full: its options, components and hooks.

    NAME is that of a list, or module:Class.
    """
    from boyd.plugin.discovery import find_plugin
    from boyd.plugin.installed_plugins import describe_plugin

    try:
        description = describe_plugin(find_plugin(name))
    except (PluginError, ConfigError) as error:
        output.stop(output.FAILED, output.one_line(str(error)))
    if not output.print_data(form, description):
        _show(description)


def _show(plugin: PluginDescription) -> None:
    output.say(f"{plugin.id}: {output.one_line(plugin.description)}")
    if plugin.options:
        rows = (
            [
                option.name,
                option.type,
                "required" if option.required else option.default,
                option.meaning,
            ]
            for option in plugin.options
        )
        output.say("\noptions, below [plugins.options]")
        output.print_table(OPTIONS, rows, indent=2)
    for title, parts in (
        ("observes", plugin.observers),
        ("orients", plugin.orienters),
        ("decides", plugin.strategies),
    ):
        _show_parts(title, parts)
    if plugin.actions:
        output.say("\nactions")
        output.print_table(ACTIONS, map(_action_row, plugin.actions), indent=2)
    _show_parts("tools for models", plugin.tools)
    if plugin.endpoints:
        output.say(f"\nendpoints, below /api/v0/plugins/{plugin.id}")
        pairs = ((f"{part.method} {part.path}", part.description) for part in plugin.endpoints)
        output.print_pairs(*pairs)
    if plugin.hooks:
        output.say(f"\nhooks: {', '.join(plugin.hooks)}")
    if not plugin.complete:
        output.say("\nThe rest depends on its options: `boyd check AGENT_FILE` lists it.")


def _show_parts(title: str, parts: Iterable[PluginComponent]) -> None:
    pairs = [(part.id, part.description) for part in parts]
    if pairs:
        output.say(f"\n{title}")
        output.print_table([label("id"), prose("description")], pairs, indent=2)


def _action_row(action: OfferedAction) -> list[str]:
    least = action.autonomy.min_confidence
    mode = action.autonomy.mode + (f", confidence {least:g}" if least is not None else "")
    switch = f"enabled by {action.enabled_by}" if action.enabled_by else "always there"
    is_declared = action.reversibility != "unknown"
    returns = action.reversibility if is_declared else "reversibility unknown"
    return [
        action.id,
        f"{action.description} Risk {action.risk}, {returns}, {mode}; {switch}.",
    ]


@plugins.command()
@click.argument("name")
@click.option("--connector", is_flag=True, help="One that connects to a service over HTTP.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Where the folder of the package goes; default: here.",
)
def new(name: str, folder: Path, *, connector: bool) -> None:
    """Write a package with a plugin, its tests and a README, to be published.

    NAME is the plugin's id. A plugin for one agent alone needs no package: `boyd init` writes one.
    """
    texts = _package_files(name, connector=connector)
    place = folder / f"boyd-{name}"
    if place.exists():
        raise ConfigError(f"{place} already exists; nothing was written")
    for path, text in texts.items():
        try:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{place / path} cannot be written: {error.strerror}") from None
        output.say(f"wrote {place / path}")
    output.say(f"Next: cd {place} && pip install -e '.[test]' && pytest")


def _package_files(name: str, *, connector: bool) -> dict[str, str]:
    """The files of the package of the plugin *name*, by path in its folder.

    Raises:
        ConfigError: it is no name for a plugin.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST or name.startswith("boyd"):
        raise ConfigError(
            f"{name!r} is no name for a plugin: use lower-case letters, digits and '-', at most "
            f"{_LONGEST}, as in disk-watch; its package is called boyd-NAME; nothing was written"
        )
    module = f"boyd_{name.replace('-', '_')}"
    cls = "".join(part.capitalize() for part in name.split("-"))
    kind = "connector" if connector else "plugin"
    plugin, test = load_template(f"{kind}.py"), load_template(f"{kind}_test.py")
    used = re.findall(r"^(?:from \S+ )?import (.+)", plugin.template + test.template, re.MULTILINE)
    if keyword.iskeyword(cls) or cls in ", ".join(used).split(", ") or find_entry_point(name):
        raise ConfigError(f"the name {name!r} is taken; nothing was written")
    values = {
        "name": name,
        "module": module,
        "cls": cls,
        "title": name.replace("-", " "),
        "version": VERSION,
        "options": 'url = "https://service.example"' if connector else 'folder = "/var/log"',
        "rights": _CONNECTOR_RIGHTS if connector else _RIGHTS,
    }
    texts = {
        "pyproject.toml": load_template("pyproject.toml"),
        "README.md": load_template("README.md"),
        f"src/{module}/__init__.py": plugin,
        f"tests/test_{name.replace('-', '_')}.py": test,
    }
    return {path: text.substitute(values) for path, text in texts.items()} | {
        f"src/{module}/py.typed": ""
    }


COLUMNS = (
    *(label("tool"), whole("risk"), whole("autonomy"), whole("digest", drop=2)),
    *(sentence("the server claims", drop=3), sentence("note", drop=1)),
)


@click.group()
def mcp() -> None:
    """Show and renew what is known of the tools of MCP servers."""


@mcp.command("list")
@click.argument("agent")
@output_option
def list_tools(agent: str, form: str) -> None:
    """List the locked tools of AGENT, an agent file, without connecting to any server.

    What a server claims of a tool, such as that it only reads, is never trusted.
    """
    plugins = _plugins(agent)
    tools: list[dict[str, str | list[str]]] = [
        {
            "tool": f"{plugin.id}:{server}/{tool}",
            "risk": plugin.pin(server, tool).risk,
            "autonomy": plugin.pin(server, tool).autonomy,
            "digest": locked.digest,
            "claims": sorted(name for name, value in locked.annotations.items() if value),
            "note": plugin.remark(server, tool),
        }
        for plugin in plugins
        for server, options in plugin.options.servers.items()
        for tool, locked in plugin.lock_of(server).tools.items()
        if options.includes(tool)
    ]
    rows = [[*map(_cell, row.values())] for row in tools]
    output.print_list(form, tools, COLUMNS, rows, "No tool is locked: run `boyd mcp sync`.")


def _cell(value: str | list[str]) -> str:
    return value if isinstance(value, str) else ", ".join(value)


@mcp.command()
@click.argument("agent")
@click.option("--check", is_flag=True, help="Write nothing; status 1 if anything differs.")
def sync(agent: str, check: bool) -> None:
    """Ask the servers of AGENT, an agent file, for their tools, and renew its lock file.

    It shows what differs. Review the lock file like code before you commit it: models and people
    read the descriptions in it.
    """
    fine = [_sync(plugin, check) for plugin in _plugins(agent)]
    output.fail_if(not all(fine))


def _sync(plugin: McpTools, check: bool) -> bool:
    from boyd.plugins.mcp_client.tool_descriptions import changes
    from boyd.plugins.mcp_client.tool_server import renew_lock

    lock, failures, notes = renew_lock(plugin.lock, plugin.options.servers, plugin.folder)
    for server, reason in failures.items():
        output.note(output.one_line(f"failed: {server}: {reason}; what is locked stays"))
    for tool, reason in notes.items():
        output.say(output.one_line(f"left out: {tool}: {reason}"))
    differences = list(changes(plugin.lock, lock))
    _say(differences)
    if not differences:
        output.say(f"{plugin.lock_file}: nothing differs")
    elif not check:
        try:
            lock.write(plugin.lock_file)
        except OSError as error:
            raise ConfigError(f"{plugin.lock_file}: {error.strerror}") from None
        output.say(f"written: {plugin.lock_file}")
    return not failures and not (check and differences)


def _say(texts: Sequence[str]) -> None:
    for lines in texts:
        for line in lines.splitlines():
            output.say("".join(c if c.isprintable() else " " for c in line))


def _plugins(agent: str) -> list[McpTools]:
    """The plugins of this kind of an agent; raises `ConfigError` without any."""
    from boyd.plugins.mcp_client import McpTools

    plugins = [
        plugin for plugin in load_agent(agent).host.plugins.values() if isinstance(plugin, McpTools)
    ]
    if not plugins:
        raise ConfigError(f"{agent}: has no plugin mcp")
    return plugins
