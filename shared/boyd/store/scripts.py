"""Loads the Lua scripts and runs them; nobody else does.

A script lies in `lua/<name>-<number of keys>.lua` and begins with a header that tells its keys,
arguments, return value and events. `-- @include name` puts `lua/include/name.lua` in its place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from boyd.store.client import Client, translated

if TYPE_CHECKING:
    from redis.commands.core import Script

_INCLUDE = re.compile(r"^-- @include (\w+)$", re.MULTILINE)
_FILE = re.compile(r"^(?P<name>\w+)-(?P<keys>\d+)\.lua$")


@cache
def sources() -> dict[str, tuple[int, str]]:
    """Every script by name: how many keys it takes, and its text with the includes in place."""
    folder = files("boyd.store") / "lua"
    found = {}
    for path in folder.iterdir():
        match = _FILE.match(path.name)
        if match:
            text = path.read_text(encoding="utf-8")
            found[match["name"]] = (int(match["keys"]), _INCLUDE.sub(_included, text))
    return found


def _included(match: re.Match[str]) -> str:
    path = files("boyd.store") / "lua" / "include" / f"{match[1]}.lua"
    return path.read_text(encoding="utf-8")


class Scripts:
    """The scripts on one Redis."""

    def __init__(self, client: Client) -> None:
        self._scripts: dict[str, Script] = {
            name: client.register_script(text) for name, (_, text) in sources().items()
        }

    def run(
        self, name: str, keys: Sequence[str], args: Sequence[Any] = (), pipe: Any = None
    ) -> Any:
        """Run a script, or add it to a pipeline.

        Raises:
            StoreUnavailable: Redis did not answer.
            StoreError: the script failed.
        """
        expected = sources()[name][0]
        assert len(keys) == expected, f"{name} takes {expected} keys"
        with translated():
            return self._scripts[name](keys=keys, args=args, client=pipe)
