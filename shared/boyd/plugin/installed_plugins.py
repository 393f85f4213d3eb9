"""The plugins that are installed, read from metadata and source without importing any of them."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path

from packaging.requirements import Requirement
from pydantic import Field

from boyd.models import Model
from boyd.plugin.discovery import GROUP, chosen, located

#: How many modules pass a class on before it is given up.
_DEPTH = 8


class InstalledPlugin(Model):
    """A plugin that a package offers.

    Attributes:
        name: the name for `use` in an agent file.
        summary: the first line of the docstring of its class.
        extra: the extra of the package that it needs.
        missing: what that extra would install, and is not there.
        error: why the plugin cannot be used.
    """

    name: str
    package: str
    version: str
    summary: str = ""
    extra: str | None = None
    missing: list[str] = Field(default_factory=list)
    error: str | None = None


def installed_plugins() -> list[InstalledPlugin]:
    """All plugins, those of Boyd first, then by name; a broken one has an error."""
    found = [_read(point) for point in entry_points(group=GROUP)]
    return sorted(found, key=lambda one: (one.package != "boyd", one.package, one.name))


def _read(point: EntryPoint) -> InstalledPlugin:
    name, extra, summary = point.name.replace("_", "-"), None, ""
    missing: list[str] = []
    used = chosen(name)
    error = f"{name!r} means the one of {_package(used)}" if used and used != point else None
    try:
        extra = next(iter(point.extras), None)
        missing = list(_missing(point.dist, extra)) if point.dist and extra else []
        summary = _summary(point.module, point.attr)
    except Exception as problem:  # noqa: BLE001 - whatever other packages hold
        error = located(problem)
    return InstalledPlugin(
        name=name,
        package=_package(point),
        version=point.dist.version if point.dist else "",
        summary=summary,
        extra=extra,
        missing=missing,
        error=error,
    )


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else ""


def _missing(package: Distribution, extra: str) -> Iterator[str]:
    """Yield what *extra* of *package* needs and is not installed, or in another version."""
    for text in package.requires or ():
        needed = Requirement(text)
        marker = needed.marker
        if marker and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""}):
            try:
                if version(needed.name) in needed.specifier:
                    continue
            except PackageNotFoundError:
                pass
            yield f"{needed.name}{needed.specifier}"


def _summary(module: str, name: str, depth: int = _DEPTH) -> str:
    """The first line of a class's docstring; empty if its source does not show it.

    Raises:
        ImportError: there is no such module.
        SyntaxError: it is not Python.
    """
    spec = _find(module)
    if not spec.origin or not spec.origin.endswith(".py") or not depth:
        return ""
    for node in _parsed(Path(spec.origin)).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return (ast.get_docstring(node) or "").partition("\n")[0]
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _summary(_origin(node, spec), alias.name, depth - 1)
    return ""


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), str(path))


def _find(module: str) -> ModuleSpec:
    """Find a module without importing the packages that it is in."""
    first, *rest = module.split(".")
    spec = importlib.util.find_spec(first)
    for name in rest:
        first = f"{first}.{name}"
        places = spec.submodule_search_locations if spec else None
        spec = PathFinder.find_spec(first, places) if places else None
    if spec is None:
        raise ModuleNotFoundError(f"no module named {first!r}", name=first)
    return spec


def _origin(node: ast.ImportFrom, spec: ModuleSpec) -> str:
    """The absolute name of the module that *node* imports from."""
    if not node.level:
        return node.module or ""
    package = spec.name if spec.submodule_search_locations else spec.parent
    base = (package or "").split(".")
    kept = base[: len(base) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])
