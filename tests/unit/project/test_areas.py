"""The table of areas is complete, and chooses the tests that a change can break."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import areas
from areas import ROOT, affects, long_files, matches, unassigned

#: Where modules are imported from.
SOURCES = ("shared", "worker", "api", "tests")
CORE = areas.areas()["core"]


def globs() -> Iterator[tuple[str, str]]:
    """Each glob of the table with its area."""
    for area in areas.areas().values():
        for glob in (*area.paths, *area.tests):
            yield area.name, glob.removeprefix("!")


def imports_of(file: str) -> Iterator[str]:
    """The files of the project that a test file imports."""
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
        else:
            continue
        for name in names:
            yield from modules(name)


@cache
def modules(name: str) -> list[str]:
    """The file of a module of the project, if it has one."""
    paths = [Path(source, *name.split(".")) for source in SOURCES]
    files = [file for path in paths for file in (path.with_suffix(".py"), path / "__init__.py")]
    return [file.as_posix() for file in files if (ROOT / file).is_file()]


def only_core(file: str) -> bool:
    """Check that the core is the only area of a file."""
    areas_of_file = [area for area in areas.areas().values() if matches(file, area.paths)]
    return areas_of_file == [CORE]


def test_every_long_test_is_affected_by_some_area() -> None:
    tests = [area.tests for area in areas.areas().values()]

    assert [file for file in long_files() if not any(matches(file, row) for row in tests)] == []


def test_every_glob_of_the_table_means_something() -> None:
    assert [row for row in globs() if not any(ROOT.glob(row[1].removesuffix("/")))] == []


def test_a_long_test_is_affected_by_what_it_imports_outside_the_core() -> None:
    importers: dict[str, set[str]] = {}
    for file in long_files():
        for path in imports_of(file):
            importers.setdefault(path, set()).add(file)

    assert {
        path: missed
        for path, files in importers.items()
        if not (only_core(path) or Path(path).name.startswith("test_"))
        and (missed := files.difference(affects([path])))
    } == {}


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        ("tests/kits/github_emulator.py", ["tests/connections/test_github.py"]),
        ("tests/kits/night_kit.py", ["tests/browser/test_pager.py"]),
    ],
)
def test_a_kit_affects_the_tests_that_import_it(changed: str, chosen: list[str]) -> None:
    assert affects([changed]) == chosen


def test_a_kit_affects_the_tests_of_the_kits_that_import_it() -> None:
    assert "tests/browser/test_pager.py" in affects(["tests/kits/slack_kit.py"])


def test_a_conftest_and_its_kits_affect_the_tests_of_its_folder_only() -> None:
    for folder in ("tests/unit/", "tests/unit/api/", "tests/browser/"):
        below = {file for file in long_files() if file.startswith(folder)}
        assert below <= set(affects([f"{folder}conftest.py"])) < set(long_files())

    unit = {file for file in long_files() if file.startswith("tests/unit/")}
    assert set(affects(["tests/unit/conftest.py"])) == unit
    assert unit <= set(affects(["tests/kits/archive_kit.py"]))
    assert "tests/faults/test_storm.py" not in affects(["tests/kits/archive_kit.py"])


def test_a_file_in_no_area_affects_all_long_tests() -> None:
    assert affects(["README.md", "shared/strange.py"]) == list(long_files())
    assert unassigned(["README.md", "shared/strange.py"]) == ["shared/strange.py"]


@pytest.mark.parametrize(
    "path", ["pyproject.toml", "constraints.txt", "tests/conftest.py", "tests/kits/harness.py"]
)
def test_files_that_all_tests_share_affect_all_long_tests(path: str) -> None:
    assert affects([path]) == list(long_files())


def test_a_test_file_affects_its_own_long_tests_only() -> None:
    assert affects(["tests/faults/test_disk.py"]) == ["tests/faults/test_disk.py"]
    assert affects(["tests/unit/text/test_moments.py", "tests/unit/test_gone.py"]) == []


def test_nothing_changed_affects_nothing() -> None:
    assert affects([]) == []


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        (
            "shared/boyd_connectors/github/github_api.py",
            ["tests/connections/test_github.py", "tests/unit/project/test_docs.py"],
        ),
        ("CHANGELOG.md", ["tests/unit/project/test_docs.py"]),
        (
            "docs/security.md",
            [
                "tests/integration/test_api_guide.py",
                "tests/integration/test_operations_guide.py",
                "tests/integration/test_security_guide.py",
                "tests/integration/test_tutorial.py",
                "tests/unit/project/test_docs.py",
            ],
        ),
        (
            "shared/boyd/replay/shadow.py",
            [
                "tests/integration/test_cli_replay.py",
                "tests/integration/test_replay.py",
                "tests/unit/goals/test_plugin.py",
                "tests/unit/plugins/test_baseline.py",
                "tests/unit/plugins/test_baseline_detection.py",
                "tests/unit/plugins/test_likely_causes.py",
                "tests/unit/replay/test_built_in_mutants.py",
                "tests/unit/replay/test_closed_loop.py",
                "tests/unit/replay/test_judged_again.py",
                "tests/unit/replay/test_process_memory.py",
                "tests/unit/replay/test_replay.py",
                "tests/unit/replay/test_replayed_plugins.py",
                "tests/unit/store/test_total_orders.py",
            ],
        ),
        ("tests/benchmarks/run.py", ["tests/integration/test_periodic_work.py"]),
    ],
)
def test_a_change_affects_the_tests_of_its_areas(changed: str, chosen: list[str]) -> None:
    assert affects([changed]) == chosen


def test_the_core_affects_faults_and_hosts_but_not_each_connector() -> None:
    files = affects(["shared/boyd/store/lua/claim.lua"])

    assert {"tests/faults/test_storm.py", "tests/hosts/test_hosts.py"} <= set(files)
    assert "tests/connections/test_github.py" not in files


def test_several_changes_affect_the_tests_of_each() -> None:
    changed = ["tests/kits/github_emulator.py", "tests/range/site.py"]

    assert affects(changed) == ["tests/connections/test_github.py", "tests/range/test_range.py"]


@pytest.mark.parametrize(
    ("path", "glob", "means"),
    [
        ("docs/a.md", "*.md", False),
        ("a.md", "*.md", True),
        ("docs/images/a.png", "docs/", True),
        ("docs/images/a.png", "docs/*", False),
        ("more/docs/a.md", "docs/", False),
    ],
)
def test_a_glob_means_whole_paths(path: str, glob: str, means: bool) -> None:
    assert matches(path, [glob]) is means


def test_an_exception_counts_wherever_it_is() -> None:
    assert not matches("docs/api.md", ["!docs/api.md", "docs/"])
    assert matches("docs/other.md", ["!docs/api.md", "docs/"])


def files_of(*names: str) -> subprocess.CompletedProcess[str]:
    """The output of the program for areas."""
    command = [sys.executable, str(ROOT / "tests" / "areas.py"), *names]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_program_prints_the_test_files_of_an_area() -> None:
    assert files_of("github").stdout.splitlines() == [
        "tests/connections/test_github.py",
        "tests/unit/connectors/test_github.py",
    ]
    assert files_of().stdout == ""


def test_an_unknown_area_is_refused_with_the_list_of_areas() -> None:
    answer = files_of("gitlab")

    assert answer.returncode != 0
    assert answer.stdout == ""
    assert "there is no area 'gitlab'" in answer.stderr
    assert all(name in answer.stderr for name in areas.areas())
