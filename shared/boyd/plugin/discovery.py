"""Finds plugin classes by entry point, dotted path, or in a folder, and locates their errors."""

from __future__ import annotations

import builtins
import difflib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any

from boyd.errors import ConfigError, PluginError
from boyd.models import PluginVersion, digest_of
from boyd.plugin import decorators
from boyd.plugin.plugin_base import Plugin
from boyd.settings.validation import nearest, saying

_BOYD = str(Path(__file__).resolve().parent.parent)
#: Paths of code that plugin authors do not write.
_FOREIGN = (f"{_BOYD}/", "<frozen", f"{Path(traceback.__file__).parent}/")
_BARE_DECORATOR = re.compile(r"(DeclaredAction)?\.?(\w+)\(\) takes \d positional \w+ but .+ given")
_CANNOT_IMPORT = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


def explain_error(error: BaseException) -> str:
    """The error as one line, with its file and line and the nearest known name."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name} line {error.lineno}: {error.msg}"
    frame, line = _own(error.__traceback__)
    message = f"{_message(error)}{_suggestion(error, frame)}"
    if frame is None:
        return message
    return f"{Path(frame.f_code.co_filename).name} line {line}: {message}"


def _own(trace: TracebackType | None) -> tuple[FrameType | None, int]:
    """The last frame outside Boyd, Python and installed packages."""
    place: tuple[FrameType | None, int] = (None, 0)
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(_FOREIGN) and "site-packages" not in name:
            place = (trace.tb_frame, trace.tb_lineno)
        trace = trace.tb_next
    return place


def _message(error: BaseException) -> str:
    text = " ".join(saying(error).split())
    if isinstance(error, NameError | ImportError) and text:
        return text
    bare = _BARE_DECORATOR.fullmatch(text)
    if bare and hasattr(getattr(decorators, bare[1]) if bare[1] else decorators, bare[2]):
        return f"write @{'….' if bare[1] else ''}{bare[2]}(), with parentheses"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _suggestion(error: BaseException, frame: FrameType | None) -> str:
    near = difflib.get_close_matches(*_missing_name(error, frame), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _missing_name(error: BaseException, frame: FrameType | None) -> tuple[str, Iterable[str]]:
    """The missing name, and the known names."""
    if isinstance(error, NameError) and error.name and frame is not None:
        return error.name, sorted({*frame.f_locals, *frame.f_globals, *dir(builtins)})
    if isinstance(error, AttributeError) and error.name:
        return error.name, dir(error.obj)
    missing = _CANNOT_IMPORT.match(str(error)) if isinstance(error, ImportError) else None
    if missing and missing[2] in sys.modules:
        return missing[1], dir(sys.modules[missing[2]])
    return "", ()


@contextmanager
def naming_plugin(name: str, failure: str) -> Iterator[None]:
    """Turn what the code of a plugin raises, except a `ConfigError`, into a `PluginError`."""
    try:
        yield
    except (ConfigError, PluginError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise PluginError(name, f"{failure}: {explain_error(error)}") from error


GROUP = "boyd.plugins"


def find_plugin(name: str, folder: Path | None = None) -> type[Plugin]:
    """Find a plugin class by its name.

    *name* is an entry point (`http-monitor`), a dotted path (`package.module:Class`), or the id of
    a single-file plugin in *folder*.

    Raises:
        PluginError: it is not found or cannot be imported, or its id has several plugins.
    """
    if ":" in name:
        return _check_plugin(name, import_object(name))
    id = name.replace("_", "-")
    in_files = _in_folder(folder, id) if folder else {}
    if folder and id not in {**_entry_points(), **in_files}:
        in_files = _in_folder(folder)  # the id may be computed, or misspelled
    if id in in_files and id in _entry_points():
        file = sys.modules[in_files[id].__module__].__file__
        raise PluginError(name, f"{file} has the id of an installed plugin: give it another")
    plugins: dict[str, Any] = {**_entry_points(), **in_files}
    if id not in plugins:
        nameless = _nameless(folder) if folder else ""
        raise PluginError(name, f"not found{nearest(id, plugins)}{nameless}")
    kind = plugins[id]
    if isinstance(kind, EntryPoint):
        with naming_plugin(name, "cannot be imported"):
            kind = kind.load()
    return _check_plugin(name, kind)


def version_of(plugin: Plugin) -> PluginVersion:
    """The version of *plugin*: its own, that of its distribution, or a digest of its file."""
    kind = type(plugin)
    version = plugin.version or next(
        (_distribution_version(point) for point in _entry_points().values() if _gives(point, kind)),
        None,
    )
    if version:
        return PluginVersion(id=plugin.id, version=version)
    if kind in _digests:
        return PluginVersion(id=plugin.id, digest=_digests[kind])
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    try:
        text = Path(file).read_text("utf-8", "replace") if file else ""
    except OSError:
        text = ""
    return PluginVersion(id=plugin.id, digest=digest_of(text) if text else None)


def _gives(point: EntryPoint, kind: type[Plugin]) -> bool:
    """Report whether an entry point names that class, perhaps by the package that exports it."""
    # Not by the properties of the entry point, which fail if another package has a wrong one.
    module, _, name = point.value.partition("[")[0].partition(":")
    there = f"{kind.__module__}.".startswith(f"{module.strip()}.")
    return there and name.strip() == kind.__qualname__


@cache
def _distribution_version(point: EntryPoint) -> str | None:
    return point.dist.version if point.dist else None


def import_object(path: str) -> Any:
    """Import the object `module:name`.

    Raises:
        ConfigError: the module cannot be imported, or has no such name.
    """
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigError(
            f"{path}: cannot import {module_name!r}: {explain_error(error)}"
        ) from error
    if not hasattr(module, attribute):
        raise ConfigError(f"{path}: {module_name!r} has no {attribute!r}")
    return getattr(module, attribute)


def _check_plugin(name: str, value: object) -> type[Plugin]:
    if isinstance(value, type) and issubclass(value, Plugin):
        return value
    raise PluginError(name, f"{value!r} is not a boyd.Plugin class")


@cache
def _entry_points() -> dict[str, EntryPoint]:
    # Nobody takes a name of Boyd's own; among others the order must not be that of a folder.
    points = sorted(entry_points(group=GROUP), key=_rank)
    return {point.name.replace("_", "-"): point for point in points}


def _rank(point: EntryPoint) -> tuple[bool, str]:
    package = point.dist.name if point.dist else ""
    return package == "boyd", package


def find_entry_point(name: str) -> EntryPoint | None:
    """The entry point that *name* stands for, if several packages have one of that name."""
    return _entry_points().get(name)


#: Digests of the files that the plugin classes of folders come from.
_digests: dict[type[Plugin], str | None] = {}


def _in_folder(folder: Path, mention: str = "") -> dict[str, type[Plugin]]:
    """The plugins of a folder by id; imports only files that mention *mention*."""
    plugins: dict[str, type[Plugin]] = {}
    files: dict[str, Path] = {}
    for path in _files(folder):
        if not _names(path, mention):
            continue
        for id, plugin in _in_file(path).items():
            if id in files:
                raise PluginError(
                    id, f"{files[id]} and {path} both have it: remove one of them, such as a copy"
                )
            plugins[id], files[id] = plugin, path
    return plugins


def _nameless(folder: Path) -> str:
    """Name the plugin classes of a folder that have no id; empty if all have one."""
    parts = [
        f"{value.__name__} of {path.name}"
        for path in _files(folder)
        for value in _classes(_load(path))
        if not value.id
    ]
    return f"; without an id: {', '.join(parts)}" if parts else ""


def _files(folder: Path) -> list[Path]:
    """The modules of a folder: hidden files are of editors and systems, such as `.#disk.py`."""
    return sorted(
        path for path in folder.glob("*.py") if path.is_file() and not path.name.startswith(".")
    )


def _names(path: Path, mention: str) -> bool:
    try:
        return mention in path.read_text("utf-8", "replace").replace("_", "-")
    except OSError:  # loading it reports the error
        return True


def _in_file(path: Path) -> dict[str, type[Plugin]]:
    module = _load(path)
    # Another agent may have a file of the same name, and so another module.
    sys.modules[module.__name__] = module
    plugins: dict[str, type[Plugin]] = {}
    for value in _classes(module):
        _digests[value] = getattr(module.__loader__, "digest", None)
        id = value.id.replace("_", "-")
        if id and plugins.setdefault(id, value) is not value:
            names = f"{plugins[id].__name__} and {value.__name__} of {path}"
            raise PluginError(id, f"{names} both have this id: give one of them another, or none")
    return plugins


class _TextLoader(SourceFileLoader):
    """Compiles the text of a file, never bytecode of one with the same size and time.

    Deployments with fixed times would run the old code.
    """

    digest: str | None = None

    def get_code(self, fullname: str) -> CodeType:
        """Compile what is there now, and keep its digest."""
        path = self.get_filename(fullname)
        data = self.get_data(path)
        self.digest = digest_of(data.decode("utf-8", "replace"))
        code: CodeType = self.source_to_code(data, path)
        return code


@cache
def _load(path: Path) -> ModuleType:
    name = f"boyd_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_TextLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with naming_plugin(path.stem, f"{path} cannot be imported"):
        spec.loader.exec_module(module)
    return module


def _classes(module: ModuleType) -> list[type[Plugin]]:
    """List the plugin classes of a module, without those that it imports."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Plugin)
        and value.__module__ == module.__name__
    ]
