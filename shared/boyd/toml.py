"""Reads TOML files; what is wrong with one is a single line that names it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from boyd.errors import ConfigError

#: Bytes that a file may have.
MAX_BYTES = 1_048_576
#: Parts, joined by dots, that a name may have: reading one takes quadratic memory.
MAX_PARTS = 32

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
    text = raw.decode("utf-8").replace("\r\n", "\n")
    if long := _LONG_NAME.search(text):
        line = text.count("\n", 0, long.start()) + 1
        raise ConfigError(f"{path}: line {line}: a name has more than {MAX_PARTS} parts")
    return text
