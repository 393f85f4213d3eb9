"""Text files that people write, also with editors and shells of Windows."""

from __future__ import annotations

import codecs
from pathlib import Path

from boyd.errors import ConfigError

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def decode(raw: bytes) -> str:
    """The text in UTF-8, or in UTF-16 with a byte order mark; without that mark.

    Raises:
        ValueError: it is neither.
    """
    try:
        text = raw.decode("utf-16" if raw.startswith(_UTF16) else "utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("is not text in UTF-8") from None
    # ASCII in UTF-16 without a mark is valid UTF-8 with zeros.
    if "\0" in text:
        raise ValueError("is not text in UTF-8: it has zero bytes")
    return text


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
