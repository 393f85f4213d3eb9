"""The documentation is complete, its links lead somewhere, and its examples run."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import click
import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from boyd import Agent, Connector, Plugin
from boyd.agent.agent import AgentFile, PluginReference, agent_from_file
from boyd.plugin import PluginHost, discovery
from boyd.plugins.approval_policy import Hours
from boyd.plugins.decision_rules import DecisionRule
from boyd.plugins.http_monitor import (
    CommandRestart,
    FunctionRestart,
    HttpRestart,
    MonitoredEndpoint,
)
from boyd.plugins.http_service import HttpAccess
from boyd.plugins.notifier import Escalation, Recipient, RecipientGroup, Rota
from boyd.plugins.process import Program
from boyd.settings.process_settings import load_settings
from boyd.testing import Lab
from boyd_cli.group import boyd
from boyd_connectors.command.plugin import ActionCommand, ObserverCommand
from boyd_connectors.dns.plugin import WatchedName
from boyd_connectors.prometheus import WatchedQuery
from boyd_connectors.tls.plugin import TlsEndpoint
from boyd_goals.goal_toolbox import ForeignTool
from boyd_slack.plugin import SlackChannel
from deploy_kit import parses
from reference import PAGES as REFERENCE

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *(ROOT / "examples").rglob("*.md")]
#: Its files and commands are tried by tests/integration/test_tutorial.py.
TUTORIAL = DOCS / "tutorial.md"
LOCAL = {"--config", "--redis-url", "--log-level"}
REMOTE = {"--config", "--url", "--key", "--profile"}
COMMON = {*LOCAL, *REMOTE, "--redis"}
#: Commands that need no settings.
WITHOUT_SETTINGS = {
    *("demo", "init", "completion", "plugins list", "plugins show", "plugins new"),
    *("mcp list", "mcp sync"),
}
#: Options whose default is said better in words.
TOLD_IN_WORDS = {"cwd", "weekdays"}


def commands() -> dict[str, click.Command]:
    """Every command by its words, those of groups one by one."""
    commands_found: dict[str, click.Command] = {}
    for name in boyd.list_commands(click.Context(boyd)):
        command = boyd.get_command(click.Context(boyd), name)
        assert command is not None
        if isinstance(command, click.Group):
            commands_found |= {
                f"{name} {sub}": subcommand for sub, subcommand in command.commands.items()
            }
        else:
            commands_found[name] = command
    return commands_found


COMMANDS = commands()
BUILT_IN = sorted(
    name
    for name, point in discovery._entry_points().items()
    if point.value.startswith(("boyd.plugins.", "boyd_goals.", "boyd_slack."))
)


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """The text below *heading*, until the next one of the same or a higher level."""
    level = heading.partition(" ")[0]
    parts = re.split(rf"^{re.escape(heading)}$", text, maxsplit=1, flags=re.MULTILINE)
    assert len(parts) == 2, f"no heading {heading!r}"
    return re.split(rf"^#{{1,{len(level)}}} ", parts[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> dict[str, str]:
    """Table rows by the code in their first cell, which may name several things."""
    lines: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith(("| `", "| [")):
            first = line.split("|")[1]
            for name in re.findall(r"`([^`]+)`", first):
                lines.setdefault(name, line)
    return lines


def blocks(text: str, language: str, mark: str = "") -> list[str]:
    """The code blocks of a language that follow an HTML comment with *mark*, or all."""
    before = rf"<!-- {mark} -->\n" if mark else ""
    return re.findall(rf"^{before}```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def default_text(field: FieldInfo) -> str | None:
    """A default as the docs write it; None when it is nothing that could be written."""
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is None or default is PydanticUndefined:
        return "none"
    if isinstance(default, BaseModel):
        values_set = default.model_dump(exclude_none=True)
        if not values_set:
            return "none"
        values = ", ".join(f"{k} = {v:g}" for k, v in values_set.items())
        return f"`{{ {values} }}`"
    if isinstance(default, tuple | list):
        return f"`{json.dumps(list(default))}`"
    if isinstance(default, bool | dict | float | int):
        return f"`{json.dumps(default)}`"
    return f"{default}" if default != "" else None


def page_of(name: str) -> str:
    """The page that describes the built-in plugin *name*."""
    connects = issubclass(discovery.find_plugin(name), Connector)
    return "connectors.md" if connects else "built-in-plugins.md"


def field_at(model: type[BaseModel], path: str) -> FieldInfo:
    """The field that a dotted path names."""
    first, _, rest = path.partition(".")
    field = model.model_fields[first]
    if not rest:
        return field
    kind = field.annotation
    assert isinstance(kind, type)
    return field_at(kind, rest)


# Plugins


def test_every_decorator_is_shown_with_every_setting() -> None:
    import boyd as public

    text = page("plugins.md")
    for name in ("observer", "orienter", "strategy", "action", "endpoint"):
        decorator: Callable[..., Any] = getattr(public, name)
        shown_call = re.search(rf"^@{name}\(.*?\)\n(?:def|@)", text, re.MULTILINE | re.DOTALL)
        assert shown_call, name
        for setting in inspect.signature(decorator).parameters:
            assert f"{setting}=" in shown_call[0], f"{name}: {setting}"


def test_the_arguments_of_component_functions_are_documented() -> None:
    from boyd import Action, Endpoint, Observer, Orienter, Strategy

    text = section(page("plugins.md"), "## Arguments")
    for kind in (Observer, Orienter, Strategy, Action, Endpoint):
        for function, offered in kind.functions.items():
            arguments = ", ".join(f"`{name}`" for name in offered)
            assert f"| {arguments} |" in text, f"{kind.__name__}.{function}"


def test_ctx_and_its_state_are_documented_completely() -> None:
    from boyd import Context
    from boyd.plugin import State

    text = page("plugins.md")
    ctx, state = section(text, "## ctx"), section(text, "## State")
    fields = [name for name in Context.__annotations__ if not name.startswith("_")]
    for name in [*fields, "logger", "http", "llm", "has_llm"]:
        assert f"`ctx.{name}" in ctx, name
    for name in (name for name in vars(State) if not name.startswith("_")):
        assert f"`{name}(" in state, name


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_plugin_has_a_section_with_its_options_and_their_defaults(name: str) -> None:
    text = section(page(page_of(name)), f"## {name}")
    kind = discovery.find_plugin(name)
    documented = rows(text)
    for option, field in kind.Options.model_fields.items():
        assert option in documented, option
        assert (default_text(field) or "") in documented[option], option
    assert f"[`{name}`](#{name})" in page(page_of(name))


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("## http-monitor", MonitoredEndpoint),
        ("## process", Program),
        ("## approval-policy", Hours),
        ("## goals", ForeignTool),
        ("## rules", DecisionRule),
        ("### A group of the notifier", RecipientGroup),
        ("### A recipient of the notifier", Recipient),
        ("### An escalation of the notifier", Escalation),
        ("### A rota of the notifier", Rota),
        ("### A channel of slack", SlackChannel),
        ("## Credentials for HTTP", HttpAccess),
        ("### An observer of command", ObserverCommand),
        ("### An action of command", ActionCommand),
        ("## dns", WatchedName),
        ("## prometheus", WatchedQuery),
        ("## tls", TlsEndpoint),
    ],
)
def test_nested_options_are_documented_with_their_defaults(
    heading: str, model: type[BaseModel]
) -> None:
    name = "connectors.md" if heading in page("connectors.md") else "built-in-plugins.md"
    documented = rows(section(page(name), heading))
    for attribute, field in model.model_fields.items():
        option = field.alias or attribute
        assert option in documented, option
        if option not in TOLD_IN_WORDS:
            assert (default_text(field) or "") in documented[option], option


@pytest.mark.parametrize("kind", [CommandRestart, HttpRestart, FunctionRestart])
def test_each_kind_of_restart_is_documented_with_its_options(kind: type[BaseModel]) -> None:
    (word,) = get_args(kind.model_fields["type"].annotation)
    text = section(page("built-in-plugins.md"), "## http-monitor")
    line = next(line for line in text.splitlines() if line.startswith(f'| `"{word}"`'))
    for option in kind.model_fields:
        assert option == "type" or f"`{option}`" in line, option


def enable_actions(kind: type[Plugin]) -> dict[str, Any]:
    """Options that enable every action of a connector."""
    field = kind.Options.model_fields.get("actions") if issubclass(kind, Connector) else None
    if field is None or not isinstance(field.annotation, type):  # the options name them
        return {}
    assert issubclass(field.annotation, BaseModel)
    return {"actions": {name: {} for name in field.annotation.model_fields}}


def test_every_component_of_a_built_in_plugin_is_named() -> None:
    needs: dict[str, dict[str, Any]] = {
        "ansible": {"project": "/a", "playbooks": {"a": {"file": "a.yml", "drift": True}}},
        "dns": {"names": [{"name": "a"}]},
        "github": {"repositories": ["a/b"]},
        "loadbalancer": {"haproxy": {"socket": "/a"}},
        "queues": {"redis": {}},
        "prometheus": {"url": "http://a"},
        "tls": {"endpoints": [{"host": "a"}]},
        "http-monitor": {"endpoints": [{"id": "a", "url": "http://a"}]},
        "notifier": {"groups": [{"name": "all", "recipients": ["http://a"]}]},
        "slack": {"token": {"env": "A"}, "groups": [{"name": "a", "channel": "C012345"}]},
        "rules": {"rules": [{"name": "none", "source": "none", "action": "a:b"}]},
    }
    for name in BUILT_IN:
        if name == "example":
            continue
        kind = discovery.find_plugin(name)
        options = {**needs.get(name, {}), **enable_actions(kind)}
        host = PluginHost([kind(**options)])
        text = section(page(page_of(name)), f"## {name}")
        for parts in (host.observers, host.orienters, host.strategies, host.actions):
            for part in parts.keys() - {"rules:none"}:
                assert f"`{part}`" in text, part


# Configuration


def agent_settings(model: type[BaseModel] = AgentFile, prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from agent_settings(kind, f"{prefix}{name}.")
        else:
            yield prefix + name


@pytest.mark.parametrize("path", list(agent_settings()))
def test_every_agent_setting_is_documented_with_its_default(path: str) -> None:
    line = rows(section(page("configuration.md"), "## The agent file"))[path]

    assert (default_text(field_at(AgentFile, path)) or "") in line


def test_every_field_of_a_plugin_reference_is_documented() -> None:
    documented = rows(section(page("configuration.md"), "### `[[plugins]]`"))

    assert set(PluginReference.model_fields) <= set(documented)


# The command line


def options(command: click.Command) -> list[str]:
    options_of_command = [param for param in command.params if isinstance(param, click.Option)]
    return [
        name for option in options_of_command for name in (*option.opts, *option.secondary_opts)
    ]


def test_the_common_options_are_those_of_all_commands_that_have_settings() -> None:
    text = section(page("cli.md"), "## Common options")
    for name, command in COMMANDS.items():
        options_of_command = set(options(command))
        kinds = [options_of_command >= LOCAL, options_of_command >= REMOTE]
        assert sum(kinds) == (name not in WITHOUT_SETTINGS), name
        assert ("--redis" in options_of_command) == (
            kinds[1] and "--redis-url" in options_of_command
        ), name

    assert all(f"`{option}" in text for option in COMMON)


def commands_of_pages() -> Iterator[Any]:
    """Every command in a block of a page: a pipe, a redirection or a comment ends it."""
    for path in PAGES:
        text = path.read_text("utf-8").replace("\\\n", " ")
        for code in blocks(text, r"\w*"):
            for line in re.findall(r"^(?:\$ )?boyd ([a-z].*)$", code, re.MULTILINE):
                command = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
                command.whitespace_split = True
                words = list(takewhile(lambda word: word[0] not in "|&;<>", command))
                yield pytest.param(words, id=f"{path.stem}-{line}")


@pytest.mark.parametrize("words", list(commands_of_pages()))
def test_every_command_of_a_page_exists_with_its_options(words: list[str]) -> None:
    try:
        assert parses(words)
    except (click.NoSuchOption, click.MissingParameter):
        raise
    except click.UsageError as error:
        # Files that only the reader has, values with … in them, and questions to a person.
        if not isinstance(error, click.BadParameter) and "pass --yes" not in error.message:
            raise


def test_every_exit_code_is_documented() -> None:
    from boyd.errors import INIT_FAILED
    from boyd_cli import output

    text = section(page("cli.md"), "## Exit codes")
    for code in (
        0,
        output.FAILED,
        2,
        output.DENIED,
        output.NOT_FOUND,
        output.CONFLICT,
        INIT_FAILED,
        124,
        130,
    ):
        assert re.search(rf"^\| {code} \|", text, re.MULTILINE), code


# The site


def build_site(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as `make docs` does; a warning is an error, unless the builder is quiet."""
    build = [sys.executable, "-m", "properdocs", "build", "--strict"]
    return subprocess.run(
        [*build, "--config-file", str(config), "--site-dir", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation as a site."""
    folder = tmp_path_factory.mktemp("site")
    done = build_site(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.long
def test_the_site_has_every_page(site: Path) -> None:
    pages = {path.stem for path in DOCS.glob("*.md")} - {"README"}

    assert pages <= {path.stem for path in site.glob("*.html")}
    assert set(REFERENCE) == {path.stem for path in (site / "reference").glob("*.html")}


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[away](missing.md)", "missing.md"),
        ("[away](index.md#missing)", "#missing"),
        ("[away](../secrets.md)", "../secrets.md"),
    ],
)
def test_a_broken_link_or_anchor_stops_the_build(text: str, complaint: str, tmp_path: Path) -> None:
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    rules = re.search(r"^validation:\n(?: .+\n)+", settings, re.MULTILINE)
    assert rules
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "index.md").write_text(f"# Home\n\n{text}\n", "utf-8")
    config = tmp_path / "mkdocs.yml"
    config.write_text(f"site_name: Broken\ntheme: readthedocs\n{rules[0]}", "utf-8")

    done = build_site(config, tmp_path / "site")

    assert done.returncode != 0
    assert complaint in done.stderr


def test_a_page_that_the_navigation_lacks_stops_the_build() -> None:
    rules = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nvalidation:\n")[2]

    assert "omitted_files: warn" in rules.partition("\nnav:")[0]


@pytest.mark.long
def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    loads = re.compile(
        r"""<(?:script|img|iframe)[^>]*src=["'](?:https?:)?//|<link[^>]*href=["'](?:https?:)?//"""
        r"""|@import|url\(["']?(?:https?:)?//"""
    )
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        assert loads.search(path.read_text("utf-8")) is None, path.name


@pytest.mark.long
def test_the_site_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))

    assert any(doc["location"].startswith("reference/settings.html") for doc in index["docs"])


# Links and examples


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", plain, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading_that_exist(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        if name.startswith("reference/"):
            text = REFERENCE[name.removeprefix("reference/").removesuffix(".md")]
        else:
            file = (path.parent / name).resolve() if name else path
            assert file.exists(), target
            text = file.read_text(encoding="utf-8") if anchor else ""
        assert not anchor or anchor in anchors(text), target


#: Where a path that a page names may begin.
ROOTS = ("", "shared", "shared/boyd", "shared/boyd/store/lua", "worker", "api")
#: The reader makes these.
MADE = {"deploy/secrets", "deploy/boyd.env"}
NAMED = re.compile(
    r"[`>]((?:(?:shared|worker|api|tests|deploy|examples|docs)/[\w./-]+"
    r"|[\w/]+\.(?:py|lua)"
    r"|(?:runtime|store|phases|llm|messaging|plugin|plugins|models|cli)/(?:[\w/]+/)?))[`<]"
)


@pytest.mark.parametrize(
    "path",
    [*sorted(set(PAGES) - {TUTORIAL}), *DOCS.glob("images/*.svg")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_file_that_a_page_names_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    folders = [path.parent, *(ROOT / root for root in ROOTS)]
    for name in set(NAMED.findall(prose)) - MADE:
        assert any((folder / name).exists() for folder in folders), name


def test_the_comparison_has_the_figures_of_the_performance_page() -> None:
    """Its rows leave out some columns of that page: taskiq, Dramatiq, ratios and targets."""
    rates = section(page("compare.md"), "## Measured")
    table = re.findall(r"^\| (\d+) observers?, (p50|20 agents)[^|]*(\|.*)$", rates, re.MULTILINE)
    measured = page("performance.md").split("Iterations a second of 20 agents at once:")
    columns = {"p50": (1, 2, 4), "20 agents": (1, 2, 5)}

    assert len(table) == 5
    for observers, kind, cells in table:
        half = measured[kind != "p50"]
        row = re.search(rf"^\| {observers} \| .*$", half, re.MULTILINE)
        assert row is not None
        figures = [cell.strip() for cell in row[0].strip("|").split("|")]
        shown_figures = re.findall(r"[\d.]+", cells)
        assert shown_figures == [figures[column] for column in columns[kind]]


NAME_IN_FILE = re.compile(r"`(\w+)`(?: in| of|,? derived from| from)+ `([\w/]+\.\w+)`")


def test_every_file_and_name_in_the_table_of_additions_exists() -> None:
    table = section((ROOT / "CONTRIBUTING.md").read_text("utf-8"), "## Where do I add a …")
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    pairs = NAME_IN_FILE.findall(table)

    assert len(pairs) > 5
    for name, file in pairs:
        assert re.search(rf"\b{name}\b", (ROOT / file).read_text("utf-8")), f"{name} in {file}"
    assert set(re.findall(r"`(boyd\.[a-z]+)`", table)) <= set(groups)


def test_the_forms_for_issues_ask_for_what_is_needed() -> None:
    forms = [
        yaml.safe_load(path.read_text("utf-8"))
        for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")
        if path.name != "config.yml"
    ]
    kinds = {"markdown", "textarea", "input"}

    assert len(forms) == 3
    for form in forms:
        assert form["name"]
        assert form["description"]
        assert {part["type"] for part in form["body"]} <= kinds
        fields = [part for part in form["body"] if part["type"] != "markdown"]
        assert len({part["id"] for part in fields}) == len(fields)
        assert any(part.get("validations", {}).get("required") for part in fields)


#: Where the folders of the map begin, and which of them it need not name.
MAPPED = ("shared/boyd", "shared/boyd_cli", "shared/boyd_goals", "api/boyd_api")
UNMAPPED = {"static", "templates"}


def test_the_map_of_the_architecture_has_a_line_for_each_folder() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    names = set(re.findall(r"([\w/]+/)(?=\s)", page.partition("```\n")[2].partition("```")[0]))
    for top in MAPPED:
        assert f"{top}/" in names
        folders = {path.parent.name for path in (ROOT / top).glob("*/__init__.py")} - UNMAPPED
        missing = {folder for folder in folders if f"{folder}/" not in names}
        assert not missing, f"docs/architecture.md does not name these folders of {top}"


def test_the_library_shows_its_parts_in_one_listing() -> None:
    library = ROOT / "shared/boyd"
    folders = [path.parent.name for path in library.glob("*/__init__.py")]
    modules = [path.name for path in library.glob("*.py")]
    assert len(folders) + len([*modules, "py.typed"]) <= 24
    assert len(modules) <= 4, "__init__, errors, naming, and checks until health/ is there"


def complete() -> Iterator[Any]:
    for path in (ROOT / "README.md", DOCS / "plugins.md", DOCS / "approvals.md"):
        for number, code in enumerate(blocks(path.read_text("utf-8"), "python", "complete"), 1):
            yield pytest.param(code, id=f"{path.stem}-{number}")


@pytest.mark.parametrize("code", list(complete()))
def test_every_complete_example_runs(code: str) -> None:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "example", "exec", dont_inherit=True), names)
    plugins = [value for value in names.values() if _own_plugin(value)]
    agents = [value for value in names.values() if isinstance(value, Agent)]
    agents += [Agent("docs", plugins=[kind() for kind in plugins])] if plugins else []
    tests = [value for name, value in names.items() if name.startswith("test_")]
    for agent in agents:
        result = Lab(agent).run()
        assert result.success
        assert result.problems == []
    for test in tests:
        test()

    assert agents or tests, "there is nothing to run in it"


def _own_plugin(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Plugin) and value.__module__ == "example"


def test_every_example_of_a_whole_module_is_run() -> None:
    for path in set(PAGES) - {TUTORIAL}:
        text = path.read_text(encoding="utf-8")
        modules = re.compile(r"^(import|from) ", re.MULTILINE)
        whole = [code for code in blocks(text, "python") if modules.search(code)]
        assert whole == blocks(text, "python", "complete"), path


def toml_blocks() -> Iterator[Any]:
    for path in sorted(set(PAGES) - {TUTORIAL}):
        text = path.read_text(encoding="utf-8")
        for number, code in enumerate(blocks(text, "toml"), 1):
            yield pytest.param(code, id=f"{path.stem}-{number}")


@pytest.mark.parametrize("code", list(toml_blocks()))
def test_every_toml_block_is_an_agent_settings_or_a_part_of_a_pyproject(
    code: str, tmp_path: Path
) -> None:
    values = tomllib.loads(code)
    path = tmp_path / "file.toml"
    if "project" in values:
        assert set(values["project"]) == {"entry-points"}
    elif "id" in values:
        path.write_text(_with_plugins(code, values, tmp_path), encoding="utf-8")
        assert agent_from_file(path).id == values["id"]
    else:
        path.write_text(code, encoding="utf-8")
        assert load_settings(file=path).agents == tuple(values.get("agents", ()))


def _with_plugins(code: str, values: Mapping[str, Any], folder: Path) -> str:
    """The agent file, and the plugins of docs and examples in the folder that it names."""
    if "plugins_dir" in values:
        plugins = folder / str(values["plugins_dir"])
        plugins.mkdir()
        whole = blocks(page("plugins.md"), "python", "complete")[0]
        (plugins / "disk.py").write_text(whole, encoding="utf-8")
        for example in ("procedure", "from-celery", "from-stackstorm", "from-rundeck"):
            shutil.copytree(ROOT / "examples" / example / "plugins", plugins, dirs_exist_ok=True)
    return code


def test_every_built_in_plugin_and_page_is_in_its_index() -> None:
    index = page("README.md")

    assert all(f"]({path.name})" in index for path in DOCS.glob("*.md") if path.name != "README.md")
    assert all(name in rows(page(page_of(name))) for name in BUILT_IN)


def test_the_glossary_defines_each_word_once_with_three_equivalents() -> None:
    lines = [line for line in page("concepts.md").splitlines() if line.count("|") > 5]
    words = [line.split("|")[1].strip() for line in lines if not line.startswith("|-")]
    defined = [word for word in words if word != "word"]

    assert len(defined) > 60
    assert len(set(defined)) == len(defined)
    for line in lines:
        assert all(cell.strip() for cell in line.split("|")[1:-1]), line


def test_no_line_of_prose_holds_two_sentences() -> None:
    for path in (ROOT / "README.md", *DOCS.glob("*.md")):
        plain = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        for line in plain.splitlines():
            if line[:1] not in ("|", "-", " ", "*", "<") and not re.match(r"\d\.", line):
                assert not re.search(r"[a-z`)]\. [A-Z]", line), f"{path.name}: {line}"


#: The number of requirements in each section of the chapter.
REQUIREMENTS = {"9.1": 3, "9.2": 10, "9.3": 8, "9.4": 4, "9.5": 6, "9.6": 3}


def test_each_requirement_of_the_security_standard_is_answered_by_tests_that_exist() -> None:
    text = section(page("security.md"), "## OWASP AISVS C9")
    table = [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines()[9:]]
    answers = [cells for cells in table if re.match(r"9\.\d", cells[0])]

    expected = [f"{part}.{n}" for part, last in REQUIREMENTS.items() for n in range(1, last + 1)]
    assert [cells[0].split()[0] for cells in answers] == expected
    for name, level, state, reason, tests in answers:
        cited = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
        assert state in ("met", "partly", "no", "declined"), name
        assert state != "declined" or level == "3", name
        assert reason, name
        assert cited or state != "met", f"{name} is met by no test"
        assert len(cited) == tests.count("::"), name
        for path, test in cited:
            code = (ROOT / path).read_text(encoding="utf-8")
            assert re.search(rf"^def {test}\(", code, re.MULTILINE), f"{path}::{test}"
