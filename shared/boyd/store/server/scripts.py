"""Loads and runs the Lua scripts; no other module does.

A script is a file `lua/<verb_noun>.lua`. Its header describes its effect, arguments, reply and
events. Its first lines name its keys and arguments, and callers use the same names:

    local iteration, due = unpack(KEYS)
    local n, epoch = unpack(ARGV, 1, 2)
    -- @include expect rest
    local batches = rest(3)

A key is an attribute of `Keys` unless the caller passes it. `rest` takes any number of arguments.
Lists and mappings are passed as JSON. Some arguments mean the same in all scripts: `n` is an
iteration's number, `resend_after` the milliseconds until a message counts as lost, `lease` is in
milliseconds, `retention` is a `Retention.limits()`, and `actor` the fields of an actor for the
audit.

`-- @include name ...` inserts functions of `lua/lib/` and their own includes. Such a function may
use keys of the script by name; its file says so (`-- Uses due`).

Redis runs a script without interruption, but does not roll it back when a command fails. So what
can make one fail is checked before the first write: a prefix added here checks that Redis permits
every command of the script, and `expect` that the keys have the right type. A lack of memory stops
a script only before its first write. What fails halfway all the same is repaired by a sweep, with
`repair_agent`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import redis
from redis.exceptions import AskError, NoScriptError, TryAgainError

from boyd.errors import NewerFormat, StoreError
from boyd.models import Actor
from boyd.store.keys import Keys
from boyd.store.server.connection import (
    Client,
    find_foreign_key,
    foreign_key,
    has_wrong_type,
    translate_errors,
)

#: Adds commands to a pipeline.
Reads = Callable[[Any], object]
#: Errors after which a script of a pipeline has not run: the server has not seen it yet, or moves
#: its keys to another one.
_NOT_RUN = (NoScriptError, AskError, TryAgainError)
#: The format version of the hashes that this release writes, also in `lua/lib/format.lua`.
FORMAT = 1

_INCLUDE = re.compile(r"^-- @include (.+)\n", re.MULTILINE)
_NAMES = re.compile(r"^local ([\w,\s]+?) =\s+unpack\((KEYS|ARGV)(?:, 1, \d+)?\)$", re.MULTILINE)
_REST = re.compile(r"^local (\w+) = rest\(\d+\)$", re.MULTILINE)
_COMMAND = re.compile(r"redis\.call\('(\w+)'")
_PERMITTED = """\
for _, command in ipairs(redis.acl_check_cmd and {%s} or {}) do
  if not redis.acl_check_cmd(command, KEYS[1], KEYS[1], KEYS[1]) then
    return redis.error_reply('NOPERM this user may not run ' .. command .. ': nothing was changed')
  end
end
"""


@dataclass(frozen=True)
class Source:
    """The source of a script, and the names in its first lines.

    Attributes:
        text: the source with its includes.
        rest: the argument that takes all remaining ones, if any.
    """

    text: str
    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    rest: str | None

    @cached_property
    def digest(self) -> str:
        """The name by which servers know the script."""
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


@cache
def source_of(name: str) -> Source:
    """The source of a script, read when it is first used: no process runs all of them."""
    text = _read(name)
    names = {kind: tuple(re.findall(r"\w+", listed)) for listed, kind in _NAMES.findall(text)}
    rest = _REST.search(text)
    whole = _insert_includes(text, set())
    commands = sorted(set(_COMMAND.findall(whole)))
    permitted = _PERMITTED % ", ".join(f"'{command}'" for command in commands)
    rest_name = rest[1] if rest else None
    return Source(permitted + whole, names["KEYS"], names.get("ARGV", ()), rest_name)


def _insert_includes(text: str, done: set[str]) -> str:
    """*text* with each include inserted once."""

    def include(match: re.Match[str]) -> str:
        inserted = ""
        for name in match[1].split():
            if name not in done:
                done.add(name)
                inserted += _insert_includes(_read(f"lib/{name}"), done)
        return inserted

    return _INCLUDE.sub(include, text)


@cache
def _read(name: str) -> str:
    return (files("boyd.store") / "lua" / f"{name}.lua").read_text(encoding="utf-8")


class Scripts:
    """The scripts on one Redis."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def of(self, keys: Keys) -> KeyedScripts:
        """The scripts on these keys."""
        return KeyedScripts(self, keys)

    def run(self, call: ScriptCall) -> Any:
        """Run a script.

        Raises:
            StoreUnavailable: Redis did not answer.
            ForeignKey: a key that the whole deployment needs holds another type.
            NewerFormat: a newer release wrote the data.
            StoreError: the script failed.
        """
        with self._translate_errors(call):
            try:
                reply = self._client.evalsha(*call.parts())
            except NoScriptError:  # this server has not seen it yet
                reply = self._client.eval(source_of(call.name).text, *call.parts()[1:])
        return call.check_format(reply)

    def run_and_read(self, call: ScriptCall, add_reads: Reads) -> tuple[Any, list[Any]]:
        """Run a script and the reads that are added to its pipeline, in one round trip.

        Redis returns a large hash many times faster outside of a script. They are not atomic:
        others may write in between. A key of another type than Boyd's is read as None.

        Raises:
            StoreUnavailable: Redis did not answer.
            NewerFormat: a newer release wrote the data.
            StoreError: the script failed.
        """
        pipe = self._client.pipeline(transaction=False)
        pipe.evalsha(*call.parts())
        add_reads(pipe)
        with self._translate_errors(call):
            reply, *replies = pipe.execute(raise_on_error=False)
            if isinstance(reply, _NOT_RUN):
                reply = self.run(call)
                add_reads(pipe)
                replies = pipe.execute(raise_on_error=False)
            call.check_format(_good(reply))
            return reply, [None if has_wrong_type(each) else _good(each) for each in replies]

    def run_each(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run all calls in one round trip.

        Returns:
            The replies in order, with a `StoreError` in place of each failure.

        Raises:
            StoreUnavailable: Redis did not answer any of them.
        """
        pipe = self._client.pipeline(transaction=False)
        for call in calls:
            pipe.evalsha(*call.parts())
        with translate_errors():
            replies = pipe.execute(raise_on_error=False)
        return [self._outcome(call, reply) for call, reply in zip(calls, replies, strict=True)]

    @contextmanager
    def _translate_errors(self, call: ScriptCall) -> Iterator[None]:
        """Turn redis-py errors into Boyd's; Redis does not name the key that a script failed at."""
        with translate_errors():
            try:
                yield
            except redis.ResponseError as error:
                foreign = has_wrong_type(error) and find_foreign_key(self._client, call.keys)
                if not foreign:
                    raise
                raise foreign_key(foreign) from error

    def _outcome(self, call: ScriptCall, reply: Any) -> Any:
        try:
            with self._translate_errors(call):
                not_run = isinstance(reply, _NOT_RUN)
                return self.run(call) if not_run else call.check_format(_good(reply))
        except StoreError as error:
            return error


@dataclass(frozen=True)
class ScriptCall:
    """The call of a script, with keys and arguments in order."""

    name: str
    keys: list[str]
    arguments: list[Any] = field(repr=False)

    @classmethod
    def of(cls, name: str, keys: Keys, values: dict[str, Any]) -> ScriptCall:
        """Put keys and arguments, given by name, in the order of the script."""
        source = source_of(name)
        own = [values.pop(key) if key in values else getattr(keys, key) for key in source.keys]
        arguments = [_argument(values.pop(argument)) for argument in source.arguments]
        if source.rest is not None:
            arguments += values.pop(source.rest)
        assert not values, f"{name} does not take {', '.join(values)}"
        return cls(name, own, arguments)

    def parts(self) -> tuple[Any, ...]:
        """The call as EVALSHA takes it; redis-py would first ask whether the server has it."""
        return source_of(self.name).digest, len(self.keys), *self.keys, *self.arguments

    def check_format(self, reply: Any) -> Any:
        """Return *reply*, or raise `NewerFormat` when a newer release wrote the data."""
        if isinstance(reply, list) and reply and reply[0] == "newer":
            raise NewerFormat(
                f"{self.keys[0]} has format version {reply[1]}; this release reads up to {FORMAT},"
                " so it leaves it to a process of the newer release that wrote it"
            )
        return reply


class KeyedScripts:
    """The scripts on the keys of one agent or of the deployment."""

    def __init__(self, scripts: Scripts, keys: Keys) -> None:
        self._scripts = scripts
        self.keys = keys

    def run(self, name: str, /, **values: Any) -> Any:
        """Run the script *name*; *values* are its keys and arguments by name.

        Raises:
            StoreUnavailable: Redis did not answer.
            NewerFormat: a newer release wrote the data.
            StoreError: the script failed.
        """
        return self._scripts.run(self.call(name, **values))

    def call(self, name: str, /, **values: Any) -> ScriptCall:
        """The call of the script *name*, to run later."""
        return ScriptCall.of(name, self.keys, values)

    def run_call(self, call: ScriptCall) -> Any:
        """Run a call made by `call`."""
        return self._scripts.run(call)

    def run_and_read(self, call: ScriptCall, add_reads: Reads) -> tuple[Any, list[Any]]:
        """Run a call made by `call`, and read after it; see `Scripts.run_and_read`."""
        return self._scripts.run_and_read(call, add_reads)


def actor_fields(actor: Actor | None) -> list[str]:
    """An actor as field, value, field, value, as scripts and the audit trail take it."""
    if actor is None:
        return []
    fields = {
        "who": actor.principal,
        "name": actor.name,
        "key": actor.key,
        "from": actor.address,
        "claims": actor.claims,
        "link": actor.link,
    }
    return [text for name, value in fields.items() if value for text in (name, value)]


def milliseconds(seconds: float) -> int:
    """Convert to whole milliseconds, as scripts take times."""
    return int(seconds * 1000)


def flat(fields: Mapping[str, Any]) -> list[Any]:
    """A mapping as a flat list of fields and values."""
    return [item for pair in fields.items() for item in pair]


def _argument(value: Any) -> Any:
    """An argument as Redis takes it: lists and mappings as JSON, None as an empty text."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list | tuple | Mapping):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "" if value is None else value


def _good(reply: Any) -> Any:
    if isinstance(reply, redis.RedisError):
        raise reply
    return reply
