"""Which tests belong to which part of the project, and which long ones a change can affect.

`python tests/areas.py archive` prints the test files of the area `archive`.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests" / "areas.toml"
#: Imports a module of a kit, whose folder is on Python's path.
_IMPORT = re.compile(r"^ *(?:from|import) (\w+)", re.MULTILINE)


def matches(path: str, globs: Sequence[str]) -> bool:
    """Match a path, relative to the project, against globs and their exceptions."""
    exceptions = [glob.removeprefix("!") for glob in globs if glob.startswith("!")]
    return any(_covers(glob, path) for glob in globs) and not any(
        _covers(glob, path) for glob in exceptions
    )


def _covers(glob: str, path: str) -> bool:
    if glob.endswith("/"):
        return path.startswith(glob)
    # The first / ties the glob to the whole path, not to its end.
    return PurePosixPath("/", path).match(f"/{glob}")


@dataclass(frozen=True)
class Area:
    """A part of the project: globs of its files, and of the tests that they affect."""

    name: str
    paths: tuple[str, ...]
    tests: tuple[str, ...]

    @cached_property
    def files(self) -> list[str]:
        """The test files of the area."""
        return [file for file in test_files() if matches(file, self.tests)]


@cache
def areas() -> dict[str, Area]:
    """The table, by names."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {
        name: Area(name, tuple(row["paths"]), tuple(row["tests"])) for name, row in table.items()
    }


@cache
def test_files() -> tuple[str, ...]:
    """Every test file, relative to the project."""
    return tuple(
        path.relative_to(ROOT).as_posix() for path in sorted(TABLE.parent.rglob("test_*.py"))
    )


@cache
def long_files() -> tuple[str, ...]:
    """Every test file that has long tests."""
    return tuple(
        file for file in test_files() if "mark.long" in (ROOT / file).read_text(encoding="utf-8")
    )


def unassigned(changed: Iterable[str]) -> list[str]:
    """Those of the changed files of which nothing says what they affect."""
    return [path for path in changed if not _areas_of(path) and not _users_of(path)]


def affects(changed: Iterable[str]) -> list[str]:
    """The files with long tests that a change to these files can affect."""
    changed = list(changed)
    if unassigned(changed):
        return list(long_files())
    files: set[str] = set()
    for path in changed:
        files.update(_users_of(path), *(area.files for area in _areas_of(path)))
    return [file for file in long_files() if file in files]


@cache
def _users_of(path: str) -> set[str]:
    """The test files that use a file of `tests/` by themselves: no table has to name them.

    A test file is used by itself, a conftest by the tests below it, and a kit by who imports it,
    directly, through other kits, or by a conftest.
    """
    if _is_test(path):
        return {path}
    if not (_is_conftest(path) or matches(path, ["tests/*.py", "tests/kits/*.py"])):
        return set()
    users: set[str] = set()
    visited, rest = {path}, [path]
    while rest:
        user = rest.pop()
        if _is_conftest(user):
            below = user.removesuffix("conftest.py")
            users.update(file for file in test_files() if file.startswith(below))
        importers = _importers().get(PurePosixPath(user).stem, set()) - visited
        users.update(filter(_is_test, importers))
        visited |= importers
        rest += [importer for importer in importers if not _is_test(importer)]
    return users


@cache
def _importers() -> dict[str, set[str]]:
    """The files below `tests/` that import a module, by its name."""
    importers: dict[str, set[str]] = {}
    for path in TABLE.parent.rglob("*.py"):
        for module in _IMPORT.findall(path.read_text(encoding="utf-8")):
            importers.setdefault(module, set()).add(path.relative_to(ROOT).as_posix())
    return importers


def _is_conftest(path: str) -> bool:
    return path.startswith("tests/") and path.endswith("/conftest.py")


def _is_test(path: str) -> bool:
    return matches(path, ["tests/"]) and PurePosixPath(path).match("test_*.py")


def _areas_of(path: str) -> list[Area]:
    if _is_test(path):
        return []
    return [area for area in areas().values() if matches(path, area.paths)]


def main() -> None:
    """Print the test files of areas, whose names are the arguments."""
    for name in sys.argv[1:]:
        if name not in areas():
            sys.exit(f"there is no area {name!r}; tests/areas.toml has: {', '.join(areas())}")
        print(*areas()[name].files, sep="\n")


if __name__ == "__main__":
    main()
