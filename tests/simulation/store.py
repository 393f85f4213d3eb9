"""A Redis in this process: Lua runs the shipped scripts on tables of its own, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import redis
from lupa import lua51
from redis.client import Pipeline

from boyd.store.server.scripts import source_of
from lua_scripts import NAMES

#: Called with the name of a command, and what runs it: others may come first, or it may fail.
Gate = Callable[[str, Callable[[], Any]], Any]


class SimulatedRedis:
    """The server: one per process of tests, emptied for each world."""

    def __init__(self) -> None:
        self._lua = lua51.LuaRuntime()
        self._null = self._lua.eval("newproxy()")
        self._lua.globals().cjson = self._lua.table_from(
            {"decode": self._decode, "encode": self._encode, "null": self._null}
        )
        self._functions = self._lua.execute(Path(__file__).with_name("store.lua").read_text())
        self._run = self._functions.command
        self._script = self._functions.script
        self._list = self._functions.list
        self.set_time = self._functions.at
        self._names = {}
        for name in NAMES:
            source = source_of(name)
            self._functions.load(source.digest, source.text)
            self._names[source.digest] = name

    def reset(self, run_id: str, *, journals: bool = False) -> None:
        """Forget everything; with a journal, a replica may take over."""
        self._functions.reset(run_id, journals)

    def fail_over(self, run_id: str, lost: int) -> float | None:
        """Let a replica take over that lacks the last *lost* writes.

        Returns:
            When the first of these was; None if it lacks none.
        """
        since: float | None = self._functions.fail_over(run_id, lost)
        return since

    def label(self, args: Sequence[Any]) -> str:
        """The name of a command for people: of a script, or with its first key."""
        script = self._names.get(args[1]) if len(args) > 1 else None
        return script or " ".join(map(str, args[:2]))

    def execute(self, name: str, *args: Any) -> Any:
        """Run a command; an error that it answers is raised."""
        texts = [argument if type(argument) is str else _text(argument) for argument in args]
        if name == "EVALSHA":
            reply = self._script(texts[0], int(texts[1]), *texts[2:])
        else:
            reply = self._run(name, *texts)
        return self._reply(reply)

    def _reply(self, reply: Any) -> Any:
        kind = type(reply)
        if kind is str or kind is int or reply is None:
            return reply
        if kind is bool:
            return 1 if reply else None
        if kind is float:
            return int(reply)
        items = self._list(reply)
        if items == 0:
            return self._status(reply)
        return [item if type(item) is str else self._reply(item) for item in items[1:]]

    def _status(self, reply: Any) -> Any:
        """The reply that a table without items stands for."""
        if reply.err is not None:
            raise redis.ResponseError(reply.err)
        return [] if reply.ok is None else reply.ok

    def _decode(self, text: str) -> Any:
        return self._to_lua(json.loads(text))

    def _to_lua(self, value: Any) -> Any:
        if value is None:
            return self._null
        if isinstance(value, dict):
            return self._lua.table_from({key: self._to_lua(item) for key, item in value.items()})
        if isinstance(value, list):
            return self._lua.table_from([self._to_lua(item) for item in value])
        return value

    def _encode(self, value: Any) -> str:
        return json.dumps(self._to_python(value), ensure_ascii=False, separators=(",", ":"))

    def _to_python(self, value: Any) -> Any:
        kind = lua51.lua_type(value)
        if kind != "table":
            return None if kind else value
        length = len(value)
        if length:
            return [self._to_python(value[i]) for i in range(1, length + 1)]
        return {str(key): self._to_python(item) for key, item in value.items()}


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    return repr(value) if isinstance(value, float) else str(value)


class SimulatedClient(redis.Redis):
    """A client whose commands pass a gate."""

    _server: SimulatedRedis
    _gate: Gate

    @classmethod
    def of(cls, server: SimulatedRedis, gate: Gate) -> SimulatedClient:
        """A client of *server*; copied, because redis-py takes long to make one."""
        client = copy(_template())
        client._server, client._gate = server, gate
        return client

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command when the scheduler lets it."""
        name = str(args[0]).upper()
        reply = self._gate(self._server.label(args), lambda: self._server.execute(name, *args[1:]))
        options.pop("keys", None)
        callbacks: Mapping[str, Any] = self.response_callbacks
        return callbacks[name](reply, **options) if name in callbacks else reply

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:
        """A pipeline: its commands are run one by one, and others come between."""
        return SimulatedPipeline(self)


@cache
def _template() -> SimulatedClient:
    return SimulatedClient(decode_responses=True, protocol=2)


class SimulatedPipeline(Pipeline):
    """Commands in one message."""

    def __init__(self, client: SimulatedClient) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, False, None)
        self._client = client

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Run them in turn."""
        stack, self.command_stack = self.command_stack, []
        replies: list[Any] = []
        for args, options in ((item[0], item[1]) for item in stack):
            try:
                replies.append(self._client.execute_command(*args, **options))
            except redis.ResponseError as error:
                replies.append(error)
        if raise_on_error:
            for reply in replies:
                if isinstance(reply, redis.ResponseError):
                    raise reply
        return replies
