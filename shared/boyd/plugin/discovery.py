"""Finds plugin classes: by entry point, by dotted path, or in a folder."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from boyd.errors import ConfigError, PluginError
from boyd.plugin.plugin import Plugin
from boyd.plugin.source_location import located
from boyd.settings.files import nearest

GROUP = "boyd.plugins"


def find_plugin(name: str, folder: Path | None = None) -> type[Plugin]:
    """The plugin class that *name* stands for.

    Args:
        name: an entry point's name (`http-monitor`), a dotted path (`package.module:Class`), or
            the id of a plugin in *folder*.
        folder: where single-file plugins lie.

    Raises:
        PluginError: nothing is found, or importing it fails.
    """
    if ":" in name:
        return _checked(name, import_object(name))
    wanted = name.replace("_", "-")
    known: dict[str, Any] = dict(_installed())
    if folder:
        known |= _in_folder(folder, wanted)
    if folder and wanted not in known:
        known |= _in_folder(folder)  # an id may be put together, or misspelled
    if wanted not in known:
        raise PluginError(name, f"not found{nearest(wanted, known)}")
    found = known[wanted]
    if isinstance(found, EntryPoint):
        try:
            found = found.load()
        except Exception as error:
            raise PluginError(name, f"cannot be imported: {located(error)}") from error
    return _checked(name, found)


def import_object(path: str) -> Any:
    """The object that `module:name` stands for.

    Raises:
        ConfigError: the module cannot be imported, or has no such name.
    """
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(f"{path}: cannot import {module_name!r}: {located(error)}") from error
    if not hasattr(module, attribute):
        raise ConfigError(f"{path}: {module_name!r} has no {attribute!r}")
    return getattr(module, attribute)


def _checked(name: str, found: object) -> type[Plugin]:
    if isinstance(found, type) and issubclass(found, Plugin):
        return found
    raise PluginError(name, f"{found!r} is not a boyd.Plugin class")


@cache
def _installed() -> dict[str, EntryPoint]:
    return {point.name.replace("_", "-"): point for point in entry_points(group=GROUP)}


def _in_folder(folder: Path, wanted: str = "") -> dict[str, type[Plugin]]:
    """The plugins of a folder by id; only files whose text names *wanted* are imported."""
    found: dict[str, type[Plugin]] = {}
    for path in sorted(folder.glob("*.py")):
        if _names(path, wanted):
            found |= _in_file(path)
    return found


def _names(path: Path, wanted: str) -> bool:
    try:
        return wanted in path.read_text("utf-8", "replace").replace("_", "-")
    except OSError:  # loading it says why
        return True


@cache
def _in_file(path: Path) -> dict[str, type[Plugin]]:
    module = _load(path)
    classes = [value for value in vars(module).values() if _defined_in(value, module)]
    return {value.id.replace("_", "-"): value for value in classes}


def _load(path: Path) -> ModuleType:
    name = f"boyd_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PluginError(path.stem, f"{path} cannot be imported: {located(error)}") from error
    return module


def _defined_in(value: object, module: ModuleType) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, Plugin)
        and value.__module__ == module.__name__
    )
