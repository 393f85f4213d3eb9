"""Keys of one call share a slot, so that a Redis Cluster can run it: looked at in every test."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import wraps
from typing import Any

import redis

_KEY = re.compile(r"boyd:(\{[^}]*\}):\S*")


def watch_slots() -> None:
    """Let each command and each transaction fail whose keys lie in several slots."""
    execute, transact = redis.Redis.execute_command, redis.client.Pipeline._execute_transaction

    @wraps(execute)
    def check_and_execute(self: Any, *args: Any, **options: Any) -> Any:
        if args[0] != "XREAD":  # who waits for the events of several agents
            _check([args])
        return execute(self, *args, **options)  # type: ignore[no-untyped-call]

    @wraps(transact)
    def check_and_transact(self: Any, connection: Any, commands: Any, raise_on_error: bool) -> Any:
        _check(command[0] for command in commands)
        return transact(self, connection, commands, raise_on_error)

    queue = redis.client.Pipeline.pipeline_execute_command

    @wraps(queue)
    def check_and_queue(self: Any, *args: Any, **options: Any) -> Any:
        _check([args])
        return queue(self, *args, **options)

    redis.Redis.execute_command = check_and_execute  # type: ignore[method-assign]
    redis.client.Pipeline._execute_transaction = check_and_transact  # type: ignore[method-assign]
    redis.client.Pipeline.pipeline_execute_command = check_and_queue  # type: ignore[method-assign]


def _check(commands: Iterable[tuple[Any, ...]]) -> None:
    tags = {
        match[1]
        for command in commands
        for part in command
        if isinstance(part, str) and (match := _KEY.fullmatch(part))
    }
    assert len(tags) < 2, f"one call has keys in several slots: {sorted(tags)}"
