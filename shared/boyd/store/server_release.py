"""Releases of Redis and Valkey: which are too old for Boyd, and which have known holes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

#: The oldest release of Redis that Boyd works with.
OLDEST = (6, 2)
_PRINTED = re.compile(r"(Redis|Valkey) server v=(\d[\w.-]*)")
_LUA, _STREAM = "CVE-2025-49844", "CVE-2026-63639"
#: Release lines with a hole that lets clients run code in the server: the first release of the
#: line without it (None: there is none) and the hole's name.
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
    """A known hole of a release.

    Attributes:
        name: its number in the list of all (CVE).
        fixed: the first release of the same line without it; None: there is none.
    """

    name: str
    fixed: str | None


@dataclass(frozen=True)
class Release:
    """A release of a server.

    Attributes:
        product: `Redis` or `Valkey`.
        version: its number as the server prints it; empty when it names none.
    """

    product: str
    version: str

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Self:
        """From the reply to INFO; Valkey names a version of Redis too, for old clients."""
        if "valkey_version" in info:
            return cls("Valkey", str(info["valkey_version"]))
        return cls("Redis", str(info.get("redis_version", "")))

    @classmethod
    def printed(cls, text: str) -> Self | None:
        """From what `--version` prints; None when it is another program."""
        found = _PRINTED.match(text)
        return cls(found[1], found[2]) if found else None

    def __str__(self) -> str:
        return f"{self.product} {self.version or 'of an unknown version'}"

    @property
    def too_old(self) -> bool:
        """Whether Boyd does not work with it. All releases of Valkey are new enough."""
        return self._numbers[:2] < OLDEST

    @property
    def hole(self) -> Hole | None:
        """The known hole that it has."""
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
