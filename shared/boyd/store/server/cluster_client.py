"""A client of a Redis Cluster, which sends each command to the server of its key.

It follows a redirection, because a server that redirects has run nothing, and repeats nothing else.
The client of redis-py is not used: after a timeout its pipelines send each command again, so that a
script could run twice, and they fail as a whole when one server is away. Here only the commands for
that server fail, and at once until it answers again or another one has taken its place.

While a slot is moved, its keys lie on two servers. A script may need keys that it does not name, so
it waits until all are on one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import redis
from redis.commands import CoreCommands
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MaxConnectionsError,
    MovedError,
    TryAgainError,
)

from boyd.store.keys import AGENTS
from boyd.store.server.refusals import WritesRefused
from boyd.store.server.slot_map import Server, SlotMap

_T = TypeVar("_T")

#: Seconds for which a command waits while its slot is moved, and between two attempts.
MOVING = 1.0
PAUSE = 0.05
#: The most redirections of one command.
_HOPS = 8
#: Commands without a key, by their first word.
_KEYLESS = frozenset({"PING", "TIME", "INFO", "CONFIG", "CLUSTER", "CLIENT", "ACL", "SCRIPT"})
_SCRIPTS = frozenset({"EVAL", "EVALSHA"})
#: The slot of the deployment's data, whose server gets commands without a key.
_HOME = key_slot(AGENTS.encode())


def slot_of(*args: Any) -> int | None:
    """The slot of a command's first key, if it has one."""
    words = str(args[0]).upper().split()
    if words[0] in _KEYLESS:
        return None
    if words[0] in _SCRIPTS:
        key = args[3]
    elif words[0] == "XREAD":
        key = args[[part in ("STREAMS", b"STREAMS") for part in args].index(True) + 1]
    else:
        key = args[1]
    return key_slot(str(key).encode())


@dataclass
class QueuedCommand:
    """A command of a pipeline, and its reply."""

    args: tuple[Any, ...]
    options: dict[str, Any]
    reply: Any = None

    @property
    def is_script(self) -> bool:
        """True if it may use keys that it does not name."""
        return str(self.args[0]).upper() in _SCRIPTS


class _Commands(CoreCommands):
    """The commands of `redis.Redis`."""

    _event_dispatcher: Any = None


class ClusterClient(_Commands):
    """A client of all servers of a cluster, with the commands of `redis.Redis`."""

    def __init__(self, slots: SlotMap) -> None:
        self.slots = slots

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self.slots.close()

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command on the server of its first key, or else of the deployment's data."""
        slot = slot_of(*args)
        return self.run(QueuedCommand(args, options), _HOME if slot is None else slot)

    def near(self, key: str) -> Nearby:
        """A client whose commands go to the server of *key*, for those without a key."""
        return Nearby(self, key_slot(key.encode()))

    def pipeline(self, transaction: bool = True) -> ClusterPipeline:
        """A pipeline; all keys of a *transaction* lie in one slot."""
        return ClusterPipeline(self, transaction)

    def run(self, command: QueuedCommand, slot: int) -> Any:
        """Run a command on the server of *slot*."""

        def attempt(server: Server, asking: bool) -> Any:
            if not asking:
                return server.client.execute_command(*command.args, **command.options)
            pipe = server.client.pipeline(transaction=False)
            pipe.execute_command("ASKING")
            pipe.execute_command(*command.args, **command.options)
            return pipe.execute()[1]

        return self.follow(slot, attempt, asks=not command.is_script)

    def follow(self, slot: int, attempt: Callable[[Server, bool], _T], *, asks: bool) -> _T:
        """Try on the server of *slot*, and on those to which it redirects.

        Args:
            slot: where the keys lie.
            attempt: gets a server, and whether to say that it was named for this command only.
            asks: a server that has only some keys of the slot will do.

        Raises:
            redis.RedisError: as *attempt* does; or the slot is still being moved.
        """
        until = time.monotonic() + MOVING
        server, asking = self.slots.server(slot), False
        for _ in range(_HOPS + int(MOVING / PAUSE)):
            try:
                server.check()
                return attempt(server, asking)
            except MovedError as error:
                server, asking = self.slots.redirect(error, server), False
            except (AskError, TryAgainError) as error:
                if isinstance(error, AskError) and asks:
                    server, asking = self.slots.at(error.host or server.place[0], error.port), True
                elif time.monotonic() >= until:
                    raise
                else:
                    time.sleep(PAUSE)
                    server, asking = self.slots.server(slot), False
            except redis.RedisError as error:
                self.note(server, error)
                raise
        raise redis.ConnectionError(f"the servers of the cluster disagree on slot {slot}")

    def note(self, server: Server, error: redis.RedisError) -> None:
        """Draw conclusions about a server from an error."""
        if isinstance(error, MovedError):
            self.slots.redirect(error, server)
        elif isinstance(error, ClusterDownError):
            self.slots.refresh()
        elif not isinstance(error, WritesRefused | MaxConnectionsError) and isinstance(
            error, redis.ConnectionError | redis.TimeoutError
        ):
            self.slots.mark_away(server)

    def send(self, commands: Sequence[QueuedCommand]) -> None:
        """Run commands, in one round trip to each server; errors are among the replies."""
        exchanges: dict[Server, _Exchange] = {}
        places = [slot_of(*command.args) for command in commands]
        home = next((slot for slot in places if slot is not None), _HOME)
        for command, slot in zip(commands, places, strict=True):
            try:
                server = self.slots.server(home if slot is None else slot)
            except redis.ConnectionError as error:
                command.reply = error
                continue
            exchanges.setdefault(server, _Exchange(server)).commands.append(command)
        for exchange in exchanges.values():
            exchange.send()
        for exchange in exchanges.values():
            exchange.receive()
            for failed in exchange.errors():
                self.note(exchange.server, failed)
        for command, slot in zip(commands, places, strict=True):
            if _is_redirected(command):
                command.reply = self._again(command, home if slot is None else slot)

    def _again(self, command: QueuedCommand, slot: int) -> Any:
        try:
            return self.run(command, slot)
        except redis.RedisError as error:
            return error


def _is_redirected(command: QueuedCommand) -> bool:
    """Check whether a command has to be sent again, elsewhere or later.

    A script that waits does not wait here: what was sent after it may have run already.
    """
    if command.is_script:
        return isinstance(command.reply, MovedError)
    return isinstance(command.reply, AskError | TryAgainError)


class Nearby(_Commands):
    """A client whose commands all go to the server of one slot."""

    def __init__(self, cluster: ClusterClient, slot: int) -> None:
        self._cluster = cluster
        self._slot = slot

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command."""
        return self._cluster.run(QueuedCommand(args, options), self._slot)


class ClusterPipeline(_Commands):
    """Commands that are sent together; those without a key go with the first one that has one."""

    def __init__(self, cluster: ClusterClient, transaction: bool) -> None:
        self._cluster = cluster
        self._transaction = transaction
        self._commands: list[QueuedCommand] = []

    def execute_command(self, *args: Any, **options: Any) -> Self:
        """Add a command."""
        self._commands.append(QueuedCommand(args, options))
        return self

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Run all commands and return their replies.

        Raises:
            redis.RedisError: the first error among the replies, unless *raise_on_error* is False.
        """
        commands, self._commands = self._commands, []
        if not commands:
            return []
        if self._transaction:
            return self._transact(commands)
        self._cluster.send(commands)
        replies = [command.reply for command in commands]
        if raise_on_error:
            for reply in replies:
                if isinstance(reply, redis.RedisError):
                    raise reply
        return replies

    def _transact(self, commands: Sequence[QueuedCommand]) -> list[Any]:
        def attempt(server: Server, _: bool) -> list[Any]:
            pipe = server.client.pipeline()
            for command in commands:
                pipe.execute_command(*command.args, **command.options)
            replies: list[Any] = pipe.execute()
            return replies

        [slot] = {slot_of(*command.args) for command in commands}
        assert slot is not None
        return self._cluster.follow(slot, attempt, asks=False)


class _Exchange:
    """The commands of a pipeline for one server, which are all sent before any reply is read."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.commands: list[QueuedCommand] = []
        self._connection: Any = None

    def send(self) -> None:
        pool = self.server.client.connection_pool
        try:
            self.server.check()
            self._connection = pool.get_connection()
            packed = self._connection.pack_commands([command.args for command in self.commands])
            self._connection.send_packed_command(packed)
        except redis.RedisError as error:
            self._fail(self.commands, error)

    def receive(self) -> None:
        if self._connection is None:
            return
        left = iter(self.commands)
        try:
            for command in left:
                command.reply = self._reply(command)
        except redis.RedisError as error:
            self._fail([command, *left], error)
        except BaseException:  # replies that nobody has read would be those of the next
            self._leave()
            raise
        self._release()

    def _reply(self, command: QueuedCommand) -> Any:
        client, name = self.server.client, command.args[0]
        try:
            return client.parse_response(self._connection, name, **command.options)
        except redis.ResponseError as error:
            return error

    def errors(self) -> Iterator[redis.RedisError]:
        for command in self.commands:
            if isinstance(command.reply, redis.RedisError):
                yield command.reply

    def _fail(self, commands: Iterable[QueuedCommand], error: redis.RedisError) -> None:
        for command in commands:
            command.reply = error
        self._leave()

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
        self._release()

    def _release(self) -> None:
        if self._connection is not None:
            self.server.client.connection_pool.release(self._connection)
            self._connection = None
