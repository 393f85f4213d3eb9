"""Releases of Redis and Valkey that are too old for Boyd or have known vulnerabilities."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

#: The oldest release of Redis that Boyd works with.
OLDEST = (6, 2)
_PRINTED = re.compile(r"(Redis|Valkey) server v=(\d[\w.-]*)")
_LUA, _STREAM = "CVE-2025-49844", "CVE-2026-63639"
#: Release lines with a vulnerability that lets clients run code in the server: the first fixed
#: patch release (None: there is none) and the vulnerability's name.
_HOLES: Mapping[tuple[str, int, int], tuple[int | None, str]] = {
    ("Redis", 6, 2): (20, _LUA),
    ("Redis", 7, 0): (None, _LUA),
    ("Redis", 7, 2): (11, _LUA),
    ("Redis", 7, 4): (6, _LUA),
    ("Redis", 8, 0): (4, _LUA),
    ("Redis", 8, 2): (2, _LUA),
    ("Redis", 8, 6): (3, "CVE-2026-23479"),
    ("Valkey", 7, 2): (14, _STREAM),
    ("Valkey", 8, 0): (10, _STREAM),
    ("Valkey", 8, 1): (9, _STREAM),
    ("Valkey", 9, 0): (5, _STREAM),
    ("Valkey", 9, 1): (1, _STREAM),
}


@dataclass(frozen=True)
class Hole:
    """A known vulnerability of a release.

    Attributes:
        name: its CVE number.
        fixed: the first fixed release of the same line, if there is one.
    """

    name: str
    fixed: str | None


@dataclass(frozen=True)
class Release:
    """The release of a server.

    Attributes:
        product: `Redis` or `Valkey`.
        version: its version as the server prints it; empty when unknown.
    """

    product: str
    version: str

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Self:
        """Read the reply to INFO; Valkey also reports a Redis version for old clients."""
        if "valkey_version" in info:
            return cls("Valkey", str(info["valkey_version"]))
        return cls("Redis", str(info.get("redis_version", "")))

    @classmethod
    def from_output(cls, text: str) -> Self | None:
        """Read the output of `--version`; None when it is another program's."""
        match = _PRINTED.match(text)
        return cls(match[1], match[2]) if match else None

    def __str__(self) -> str:
        return f"{self.product} {self.version or 'of an unknown version'}"

    @property
    def too_old(self) -> bool:
        """True if it is too old for Boyd; no release of Valkey is."""
        return self._numbers[:2] < OLDEST

    @property
    def hole(self) -> Hole | None:
        """The known vulnerability of this release, if any."""
        major, minor, patch = (*self._numbers, 0, 0, 0)[:3]
        if (self.product, major, minor) not in _HOLES:
            return None
        fixed, name = _HOLES[self.product, major, minor]
        if fixed is None:
            return Hole(name, None)
        return Hole(name, f"{major}.{minor}.{fixed}") if patch < fixed else None

    @property
    def _numbers(self) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"\d{1,9}", self.version)[:3])
