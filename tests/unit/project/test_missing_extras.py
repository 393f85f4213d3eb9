"""Without an extra, all that needs it names it, and the API answers 503: senders try again."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data" / "intake"
#: Extras that this test needs itself; nothing but the server of `boyd up` needs the first.
KEPT = {"embedded", "testing"}
PEM = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
SERVER = {"BOYD_API__PORT": "0", "BOYD_REDIS_URL": "redis://127.0.0.1:1"}


def plugin(name: str, options: str = "") -> str:
    return f'id = "a"\n[[plugins]]\nuse = "{name}"\n[plugins.options]\n{options}\n'


#: Agent files by the extra that they need.
AGENTS = [
    ("calendars", 'id = "a"\n[[windows]]\nname = "office"\nfreezes = "freezes.ics"\n'),
    ("conditions", 'id = "a"\n[autonomy."a:b"]\nwhen = "decision.confidence > 0.5"\n'),
    (
        "conditions",
        plugin("rules", '[[plugins.options.rules]]\nname = "r"\nsource = "s"\nwhen = "true"')
        + 'action = "a:b"\n',
    ),
    ("dns", plugin("dns", 'names = [{ name = "shop.example" }]')),
    ("goals", plugin("goals")),
    ("mcp", plugin("mcp", '[plugins.options.servers.one]\nurl = "https://one.example/mcp"')),
    (
        "notify",
        plugin("notifier", '[[plugins.options.groups]]\nname = "ops"\n')
        + 'recipients = ["mailto://smtp.example?from=a@b.example&to=c@d.example"]\n',
    ),
    (
        "postgresql",
        plugin("postgres", 'host = "db"\ndatabase = "d"\naccess = { username = "u" }'),
    ),
    ("tls", plugin("tls", 'endpoints = [{ host = "shop.example" }]')),
]
#: Commands by the extra that they need, with the variables of their environment.
COMMANDS: list[tuple[str, list[str], dict[str, str]]] = [
    ("intakes", ["intake", "try", str(DATA / "github" / "firing.json")], {}),
    ("otel", ["traces"], {**SERVER, "BOYD_TRACES__ENDPOINT": "http://127.0.0.1:1"}),
    ("postgresql", ["archive"], {**SERVER, "BOYD_ARCHIVE_URL": "postgresql://db.example/d"}),
    (
        "oidc",
        ["api"],
        {
            **SERVER,
            "BOYD_OIDC__ISSUER": "https://id.example",
            "BOYD_OIDC__CLIENT_ID": "boyd",
            "BOYD_OIDC__GROUPS": '{"ops": ["read"]}',
            "BOYD_API__URL": "https://boyd.example",
        },
    ),
    ("signatures", ["api"], {**SERVER, "BOYD_APPROVAL_PRIVATE_KEY": PEM}),
]

EXAMPLES = sorted((ROOT / "examples").rglob("agent.toml"))
#: Hides the modules of the first argument; runs what standard input says, and prints what came.
_PROGRAM = """
import contextlib, io, json, os, sys
from pathlib import Path

hidden, tests, work = set(sys.argv[1].split(",")), sys.argv[2], json.load(sys.stdin)

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hiding())
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
    None if name.partition(".")[0] in hidden else find(name, package)
)
sys.path[:0] = [tests, tests + "/kits"]
from boyd_cli.group import run

def call(argv, env):
    before, sys.argv = dict(os.environ), ["boyd", *argv]
    os.environ.update(env)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            status = run()
        except SystemExit as end:
            status = end.code
    os.environ.clear()
    os.environ.update(before)
    return status, printed.getvalue()

results = {"commands": [call(argv, env) for argv, env in work["commands"]], "posts": []}
import fakeredis
from api_kit import Site, make_desk
server = fakeredis.FakeServer()
site = Site(make_desk(server)[0], server)
for path, body in work["posts"]:
    key = site.key("read", principal="robot") if path == "/mcp" else site.admin
    answer = site.client.post(path, json=body, headers=key)
    results["posts"].append((path, answer.status_code, answer.json))
print(json.dumps(results))
"""


def packages(*extras: str) -> set[str]:
    """The packages that Boyd needs with some extras."""
    names, remaining = set(), [("boyd", extra) for extra in ("", *extras)]
    done: set[tuple[str, str]] = set()
    while remaining:
        name, extra = remaining.pop()
        done.add((name, extra))
        names.add(name)
        for line in requires(name) or ():
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                needs = [(canonicalize_name(need.name), each) for each in ("", *need.extras)]
                remaining += [pair for pair in needs if pair not in done]
    return names


def optional_modules() -> list[str]:
    """The modules that only extras bring."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    base = packages(*KEPT)
    extras = packages(*project["optional-dependencies"]) - base
    return [
        module
        for module, owners in packages_distributions().items()
        if {canonicalize_name(owner) for owner in owners} <= extras
    ]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("extras")
    (folder / "freezes.ics").write_text("BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n")
    commands: list[tuple[list[str], dict[str, str]]] = []
    for number, (_, text) in enumerate(AGENTS):
        (folder / f"{number}.toml").write_text(text)
        commands.append((["check", f"{number}.toml"], {}))
    commands += [(argv, env) for _, argv, env in COMMANDS]
    commands += [(["check", str(path)], {}) for path in EXAMPLES]
    posts = [
        (f"/api/v0/intake/{path.name}", json.loads((path / "firing.json").read_bytes()))
        for path in sorted(DATA.iterdir())
        if (path / "firing.json").exists()
    ]
    posts.append(("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, ",".join(optional_modules()), str(ROOT / "tests")],
        input=json.dumps({"commands": commands, "posts": posts}),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def extras_in(text: str) -> set[str]:
    """The extras that a text names, as in `boyd[goals,mcp]`."""
    return {extra for words in re.findall(r"boyd\[([\w,]+)\]", text) for extra in words.split(",")}


NEEDS = [*(extra for extra, _ in AGENTS), *(extra for extra, _, _ in COMMANDS)]


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(NEEDS)), ids=lambda number: NEEDS[number])
def test_a_command_without_its_extra_names_it(results: Any, number: int) -> None:
    _status, printed = results["commands"][number]

    assert f"boyd[{NEEDS[number]}]" in printed


@pytest.mark.long
def test_an_intake_without_its_extra_is_unavailable_and_never_the_fault_of_its_sender(
    results: Any,
) -> None:
    statuses = {path: status for path, status, _ in results["posts"]}
    refusals = {path: answer["detail"] for path, status, answer in results["posts"] if status > 202}

    # These two are read without a mapping.
    assert {path for path in statuses if path not in refusals} == {
        "/api/v0/intake/alertmanager",
        "/api/v0/intake/grafana",
    }
    assert {statuses[path] for path in refusals} == {503}
    assert "boyd[mcp]" in refusals.pop("/mcp")
    assert all("boyd[intakes]" in detail for detail in refusals.values())


@pytest.mark.long
@pytest.mark.parametrize(
    "number", range(len(EXAMPLES)), ids=lambda number: EXAMPLES[number].parent.name
)
def test_an_example_names_the_extra_that_it_needs(results: Any, number: int) -> None:
    status, printed = results["commands"][len(NEEDS) + number]
    readme = (EXAMPLES[number].parent / "README.md").read_text("utf-8")
    needed, listed = extras_in(printed), extras_in(readme)

    assert status == 0 or needed, printed
    assert needed <= listed


@pytest.mark.long
def test_every_extra_that_brings_a_package_is_in_a_table() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    base = packages()
    extras = {name for name in project["optional-dependencies"] if packages(name) > base}

    assert {*NEEDS, "intakes", "mcp"} == extras - KEPT
