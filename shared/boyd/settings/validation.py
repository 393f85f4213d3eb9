"""Files of settings: where they are, how they are read, and messages about invalid ones."""

from __future__ import annotations

import codecs
import difflib
import io
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args
from urllib.parse import urlsplit

import platformdirs
from pydantic import AfterValidator, BaseModel, ValidationError

from boyd.errors import ConfigError
from boyd.models.base import explain, strip_prefix
from boyd.text.formatting import message_of

#: The most characters of a line of a file that is read line by line.
MAX_LINE = 1_048_576
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def decode(raw: bytes) -> str:
    """The text in UTF-8, or in UTF-16 with a byte order mark; without that mark.

    Raises:
        ValueError: it is neither.
    """
    try:
        text = raw.decode(_encoding_of(raw))
    except UnicodeDecodeError:
        raise ValueError("is not text in UTF-8") from None
    # ASCII in UTF-16 without a mark is valid UTF-8 with zeros.
    if "\0" in text:
        raise ValueError("is not text in UTF-8: it has zero bytes")
    return text


def _encoding_of(raw: bytes) -> str:
    return "utf-16" if raw.startswith(_UTF16) else "utf-8-sig"


def read_text(path: Path) -> str:
    """The content of a text file.

    Raises:
        ConfigError: it cannot be read, or is not text.
    """
    try:
        return decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


def read_lines(path: Path, longest: int = MAX_LINE) -> Iterator[str]:
    """The lines of a text file of any size, with their ends, as it is read.

    Raises:
        ConfigError: it cannot be read, is not text, or a line has more than *longest* characters.
    """
    number = 0
    try:
        with path.open("rb") as raw:
            text = io.TextIOWrapper(raw, encoding=_encoding_of(raw.peek(2)), newline="")
            while line := text.readline(longest + 1):
                number += 1
                if len(line) > longest:
                    raise ConfigError(f"{path}: line {number}: more than {longest} characters")
                if "\0" in line:
                    raise ConfigError(f"{path}: line {number}: it has zero bytes")
                yield line
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not text in UTF-8") from None


def state_folder() -> Path:
    """The folder for data and logs of `boyd up`."""
    return _folder(platformdirs.user_state_path, Path("/var/lib/boyd"))


def config_folder() -> Path:
    """The folder for profiles."""
    return _folder(platformdirs.user_config_path, Path("/etc/boyd"))


def _folder(of_user: Callable[[str], Path], of_system: Path) -> Path:
    try:
        return of_user("boyd")
    except RuntimeError:  # neither HOME nor an entry in the list of users
        return of_system


#: Maximum bytes of a file.
MAX_BYTES = 1_048_576
#: Maximum parts of a dotted name, as reading one takes quadratic memory.
MAX_PARTS = 32

#: What pydantic calls alternatives that are no models.
_TYPES = {"str", "int", "float", "bool"}
_PART = r"""(?:(?<![\w-])[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_NAME = re.compile(rf"(?:{_PART}[ \t]*+\.[ \t]*+){{{MAX_PARTS}}}")


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        ConfigError: it cannot be read, is too large, or is not TOML.
    """
    try:
        return tomllib.loads(_text(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{path}: its lists or tables nest too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def _text(path: Path) -> str:
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path}: is longer than {MAX_BYTES} bytes")
    try:
        text = decode(raw).replace("\r\n", "\n")
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    if long := _LONG_NAME.search(text):
        line = text.count("\n", 0, long.start()) + 1
        raise ConfigError(f"{path}: line {line}: a name has more than {MAX_PARTS} parts")
    return text


def mistakes(error: ValidationError, model: type[BaseModel]) -> str:
    """One line about the settings that *model* rejects, with the nearest known names."""
    parts = []
    for item in _closest(error, model):
        place = item["loc"]
        message = strip_prefix(item["msg"])
        if item["type"] == "extra_forbidden":
            message = f"is not known{nearest(str(place[-1]), _names(model, place[:-1]))}"
        where = ".".join(str(step) for step in place)
        parts.append(f"{where}: {message}" if where else message)
    return "; ".join(parts)


def _closest(error: ValidationError, model: type[BaseModel]) -> list[Any]:
    """The errors with the places of settings; of alternatives, those that the value is closest to.

    Where a setting may be a text or a table, a wrong value in the table is not told as the lack of
    a text, too.
    """
    alternatives = {kind.__name__ for kind in _all_models(model)} | _TYPES
    items: list[Any] = error.errors(include_url=False, include_context=False, include_input=False)
    for item in items:
        item["loc"] = tuple(
            step for step in item["loc"] if step not in alternatives and "[" not in str(step)
        )
    deeper = {item["loc"][:length] for item in items for length in range(len(item["loc"]))}
    of_right_type = {item["loc"] for item in items if not item["type"].endswith("_type")}
    return [
        item
        for item in items
        if item["loc"] not in deeper
        and not (item["type"].endswith("_type") and item["loc"] in of_right_type)
    ]


def saying(error: object) -> str:
    """The message of an error; for a validation error, the fields and reasons without links."""
    if isinstance(error, ValidationError):
        return f"{error.title}: {explain(error)}"
    return message_of(error)


def nearest(name: str, candidates: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, or all."""
    names = sorted(candidates)
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""


def _names(model: type[BaseModel], place: Iterable[int | str]) -> set[str]:
    """The names of the settings at *place* in *model*."""
    models = [model]
    for step in map(str, place):
        fields = [each.model_fields[step] for each in models if step in each.model_fields]
        # Positions in lists and keys of tables are not fields: the models stay the same.
        if fields:
            models = [nested for field in fields for nested in _models(field.annotation)]
    return {name for each in models for name in each.model_fields}


def _all_models(model: type[BaseModel]) -> set[type[BaseModel]]:
    """A model and those of its fields, at every depth."""
    reached, waiting = set(), [model]
    while waiting:
        kind = waiting.pop()
        if kind not in reached:
            reached.add(kind)
            waiting += [m for f in kind.model_fields.values() for m in _models(f.annotation)]
    return reached


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation such as `list[Model] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _base_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must begin with http:// or https:// and have a host")
    if "@" in parts.netloc:
        raise ValueError("must not hold a user or password; use the options for credentials")
    return url.rstrip("/")


#: The address of an HTTP service, without credentials.
BaseUrl = Annotated[str, AfterValidator(_base_url)]
