"""Loads the Lua scripts and runs them; nobody else does.

A script lies in `lua/<name>.lua` and begins with a header that tells its keys, arguments, return
value and events. `-- @include name` puts `lua/lib/name.lua` in its place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import redis
from redis.exceptions import NoScriptError

from boyd.errors import StoreError, StoreUnavailable
from boyd.store.connection import Client, translated

if TYPE_CHECKING:
    from redis.commands.core import Script

_INCLUDE = re.compile(r"^-- @include (\w+)$", re.MULTILINE)
_KEY = re.compile(r"^-- KEYS\[\d+\]", re.MULTILINE)


@cache
def sources() -> dict[str, tuple[int, str]]:
    """Every script by name: how many keys it takes, and its text with the includes in place."""
    folder = files("boyd.store") / "lua"
    found = {}
    for path in folder.iterdir():
        if path.name.endswith(".lua"):
            text = path.read_text(encoding="utf-8")
            name = path.name.removesuffix(".lua")
            found[name] = (len(_KEY.findall(text)), _INCLUDE.sub(_included, text))
    return found


def _included(match: re.Match[str]) -> str:
    path = files("boyd.store") / "lua" / "lib" / f"{match[1]}.lua"
    return path.read_text(encoding="utf-8")


class Scripts:
    """The scripts on one Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client
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

    def run_and_read(
        self, name: str, keys: Sequence[str], args: Sequence[Any], hash_key: str
    ) -> tuple[Any, dict[str, str]]:
        """Run a script and read a whole hash after it, in one round trip.

        Redis hands a large hash out many times as fast as a script does, and serves nobody else
        meanwhile. The two are not one step: others may write in between, and the caller has to see
        from the hash that they did not.

        Raises:
            StoreUnavailable: Redis did not answer.
            StoreError: the script failed.
        """
        pipe = self._client.pipeline(transaction=False)
        self._add(pipe, name, keys, args)
        pipe.hgetall(hash_key)
        with translated():
            reply, fields = pipe.execute(raise_on_error=False)
            if isinstance(reply, NoScriptError):
                return self.run(name, keys, args), self._client.hgetall(hash_key)
            return _good(reply), _good(fields)

    def run_each(
        self, name: str, calls: Sequence[tuple[Sequence[str], Sequence[Any]]]
    ) -> list[Any]:
        """Run a script for each pair of keys and arguments, in one round trip.

        Returns:
            The replies in order; a `StoreError` in place of one that failed.

        Raises:
            StoreUnavailable: Redis did not answer.
        """
        pipe = self._client.pipeline(transaction=False)
        for keys, args in calls:
            self._add(pipe, name, keys, args)
        with translated():
            replies = pipe.execute(raise_on_error=False)
        return [
            self._outcome(name, call, reply) for call, reply in zip(calls, replies, strict=True)
        ]

    def _outcome(self, name: str, call: tuple[Sequence[str], Sequence[Any]], reply: Any) -> Any:
        try:
            with translated():
                return self.run(name, *call) if isinstance(reply, NoScriptError) else _good(reply)
        except StoreUnavailable:
            raise
        except StoreError as error:
            return error

    def _add(self, pipe: Any, name: str, keys: Sequence[str], args: Sequence[Any]) -> None:
        """Add a script to a pipeline; redis-py would ask before whether the server has it."""
        pipe.evalsha(self._scripts[name].sha, len(keys), *keys, *args)


def _good(reply: Any) -> Any:
    if isinstance(reply, redis.RedisError):
        raise reply
    return reply
