"""`boyd plugins`: what is installed, without importing it, and packages for new plugins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pydantic import BaseModel, Field

from boyd import Connector, Plugin, action
from boyd.plugin import discovery
from boyd.plugin.installed_plugins import describe_plugin, options_of
from boyd_cli.commands.plugin_commands import plugins

METADATA = """Metadata-Version: 2.1
Name: boyd-others
Version: 2.3
Provides-Extra: fast
Requires-Dist: nowhere-to-be-found>=1; extra == "fast"
Requires-Dist: pydantic>=2; extra == "fast"
"""
POINTS = """[boyd.plugins]
fine = others_pkg:Fine
needy = others_pkg.needy:Needy [fast]
syntax = others_pkg.syntax:Syntax
absent = others_pkg.nowhere:Absent
raising = others_pkg.raising:Raising
leaving = others_pkg.leaving:Leaving
crooked = ::
shell = others_pkg:Fine
"""
FILES = {
    "others_pkg/__init__.py": "from .fine import Fine\n",
    "others_pkg/fine.py": (
        'from boyd import Plugin\n\nclass Fine(Plugin):\n    """Does fine."""\n    id = "fine"\n'
    ),
    "others_pkg/needy.py": 'import nowhere_to_be_found\n\nclass Needy:\n    """Needs much."""\n',
    "others_pkg/syntax.py": "class Syntax(:\n",
    "others_pkg/raising.py": 'raise RuntimeError("no luck")\n',
    "others_pkg/leaving.py": "import sys\n\nsys.exit(0)\n",
    "boyd_others-2.3.dist-info/METADATA": METADATA,
    "boyd_others-2.3.dist-info/entry_points.txt": POINTS,
}


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Plugins of another package, most of them broken."""
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    discovery._entry_points.cache_clear()
    return tmp_path


@pytest.fixture(autouse=True)
def _forget() -> None:
    discovery._entry_points.cache_clear()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(plugins, arguments)


def list_plugins(*arguments: str) -> dict[str, dict[str, object]]:
    result = run("list", "-o", "json", *arguments)
    assert result.exit_code == 0, result.output
    return {row["name"]: row for row in json.loads(result.output)}


@pytest.mark.usefixtures("others")
def test_plugins_of_all_packages_are_listed_and_a_broken_one_breaks_nothing() -> None:
    by_name = list_plugins()

    assert "error" not in by_name["fine"]
    assert (by_name["fine"]["package"], by_name["fine"]["version"]) == ("boyd-others", "2.3")
    assert by_name["fine"]["summary"] == "Does fine."
    assert by_name["needy"]["missing"] == ["nowhere-to-be-found>=1"]
    assert "syntax.py line 1" in str(by_name["syntax"]["error"])
    assert "others_pkg.nowhere" in str(by_name["absent"]["error"])
    assert by_name["process"]["package"] == "boyd"
    assert not [name for name in sys.modules if name.startswith("others_pkg")]
    assert "needs boyd-others[fast]: nowhere-to-be-found>=1" in run("list").output


@pytest.mark.usefixtures("others")
def test_nobody_takes_the_name_of_a_plugin_of_boyd() -> None:
    rows = json.loads(run("list", "-o", "json").output)
    [own, other] = [row for row in rows if row["name"] == "shell"]

    assert discovery.find_plugin("shell").__module__.startswith("boyd.")
    assert (own["package"], own.get("error")) == ("boyd", None)
    assert other["error"] == "'shell' means the one of boyd"


@pytest.mark.usefixtures("others")
def test_a_wrong_entry_point_of_another_package_harms_no_plugin() -> None:
    assert "error" in list_plugins()["crooked"]
    assert run("show", "crooked").exit_code == 1
    assert discovery.version_of(Varied(names=[])).digest


@pytest.mark.usefixtures("others")
def test_import_errors_are_shown_only_when_plugins_are_loaded() -> None:
    assert "error" not in list_plugins()["raising"]
    assert "RuntimeError: no luck" in str(list_plugins("--load")["raising"]["error"])
    assert "SystemExit" in str(list_plugins("--load")["leaving"]["error"])
    result = run("show", "raising")
    assert result.exit_code == 1
    assert "no luck" in result.output


def test_every_built_in_plugin_is_described_with_its_options_and_actions() -> None:
    for name, row in list_plugins().items():
        if row["package"] == "boyd":
            assert row["summary"], name
            result = run("show", name, "-o", "json")
            assert result.exit_code == 0, result.output
            data = json.loads(result.output)
            assert data["id"] == name
            assert [opt["name"] for opt in data["options"] if not opt["meaning"]] == [], name
    text = run("show", "process").output
    for part in ("processes.NAME.pidfile", "process:alive", "process:signal", "irreversible"):
        assert part in text


class Inner(BaseModel):
    """Something inside.

    Attributes:
        size: how large it is.
    """

    size: int
    colour: str = "red"


class Lamp(Connector):
    """Switches lamps."""

    id = "lamp"

    class Actions(BaseModel):
        switch: Inner | None = None

    class Options(Connector.Options):
        url: str = Field(description="where it is")
        one: Inner = Inner(size=3)
        many: list[Inner] = Field(default_factory=list)
        by_name: dict[str, Inner] = Field(default_factory=dict)
        actions: Lamp.Actions

    options: Options

    @action(risk="high")
    def switch(self) -> None:
        """Switch it."""


Lamp.Options.model_rebuild()


def test_options_are_listed_with_those_that_they_hold() -> None:
    options = {option.name: option for option in options_of(Lamp.Options)}

    assert (options["url"].required, options["url"].meaning) == (True, "where it is")
    assert (options["one.size"].default, options["one.size"].meaning) == ("3", "how large it is.")
    assert options["one.colour"].default == '"red"'
    assert options["many"].type == "array of table"
    for name in ("many", "by_name", "actions.switch"):
        assert options[name].meaning == "Options as of `one`."


def test_an_action_that_options_enable_is_described_with_the_option() -> None:
    described = describe_plugin(Lamp)
    (switch,) = described.actions

    assert (switch.id, switch.risk, switch.enabled_by) == ("lamp:switch", "high", "actions.switch")
    assert described.complete


class Varied(Plugin):
    id = "varied"

    class Options(Plugin.Options):
        names: list[str]

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.components = ()


def test_a_plugin_that_makes_components_of_required_options_says_so() -> None:
    assert not describe_plugin(Varied).complete


@pytest.mark.parametrize(
    "name", ["Upper", "a_b", "boyd-x", "../x", "x" * 41, "", "none", "plugin", "shell"]
)
def test_a_name_that_does_not_fit_writes_nothing(name: str, tmp_path: Path) -> None:
    result = run("new", name, "--folder", str(tmp_path))

    assert "nothing was written" in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_a_package_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    assert run("new", "one", "--folder", str(tmp_path)).exit_code == 0
    assert "already exists" in str(run("new", "one", "--folder", str(tmp_path)).exception)


@pytest.mark.long
@pytest.mark.parametrize("kind", [[], ["--connector"]], ids=["plain", "connector"])
def test_the_package_of_a_new_plugin_installs_and_its_tests_pass(
    kind: list[str], tmp_path: Path
) -> None:
    assert run("new", "two-words", "--folder", str(tmp_path), *kind).exit_code == 0
    package, site = tmp_path / "boyd-two-words", tmp_path / "site"
    offline = [
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--quiet",
        "--no-input",
    ]
    python([*offline, "--target", str(site), str(package)], site)

    assert "4 passed" in python(["-m", "pytest", "-q", str(package / "tests")], site)
    output = python(["-m", "boyd_cli", "plugins", "show", "two-words"], site)
    assert ("actions.set_switch" in output) == bool(kind)
    python(["-m", "mypy", "--strict", str(package / "src")], site)


def python(arguments: list[str], site: Path) -> str:
    """Run Python with the packages in *site*, and return its output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=site.parent,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(site), "HOME": str(site.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


#: Libraries that only some plugins and settings need.
HEAVY = ("apprise", "numpy", "rdflib", "psycopg", "authlib", "cel_expr_python", "icalendar")


@pytest.mark.long
def test_only_the_plugins_of_an_agent_are_imported(tmp_path: Path) -> None:
    """Neither `import boyd` nor the processes of `boyd up` load what no agent uses."""
    (tmp_path / "agent.toml").write_text('id = "a"\n[[plugins]]\nuse = "host-metrics"\n')
    code = (
        "import sys, boyd\n"
        "mine = lambda: sorted(n for n in sys.modules if n.startswith('boyd.plugins.'))\n"
        "print(mine())\n"
        "import boyd_worker.worker, boyd_worker.beat, boyd.embedded.supervisor\n"
        "from boyd.agent import load_agent\n"
        "load_agent('agent.toml')\n"
        "print(mine())\n"
        "import boyd_api.app\n"
        f"print([n for n in {HEAVY} if n in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    own = [
        f"boyd.plugins.{name}" for name in ("bounded_calls", "host_metrics", "situation_priority")
    ]
    assert done.stdout.splitlines() == ["[]", str(own), "[]"]
