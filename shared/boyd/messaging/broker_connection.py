"""kombu's connections to the broker, with fewer sockets and commands.

A process that waits sends a command every five seconds, over one connection, and has another for
sending messages.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cache
from typing import Any

import redis
from kombu import Connection
from kombu.connection import ConnectionPool, PooledConnection

log = logging.getLogger("boyd.messaging.broker_connection")

#: Seconds between attempts to connect; kombu waits up to 30.
_TRIES = {"interval_start": 0.5, "interval_step": 0.5, "interval_max": 5}
#: Seconds for which a process that ends waits for a broker that does not answer.
_LAST_WORD = 2.0


class BrokerConnection(Connection):  # type: ignore[misc]
    """A connection that consumes messages, and reconnects quickly."""

    def Pool(self, limit: int | None = None, **options: Any) -> _Pool:  # noqa: N802 - kombu's name
        """A pool of connections that send messages."""
        return _Pool(self, limit, **options)

    def ensure_connection(self, *args: Any, **options: Any) -> Connection:
        """Connect, however long it takes."""
        return super().ensure_connection(*args, **{**_TRIES, **options})

    def get_transport_cls(self) -> type[Any]:
        """The class of its transport."""
        return _consuming(super().get_transport_cls())


class _Sender(PooledConnection):  # type: ignore[misc]
    def get_transport_cls(self) -> type[Any]:
        return _sending(super().get_transport_cls())


class _Pool(ConnectionPool):  # type: ignore[misc]
    def new(self) -> _Sender:
        return _Sender(self, **self.connection.info())


@cache
def _sending(transport: type[Any]) -> type[Any]:
    """A transport with one client and so one socket.

    kombu makes a client per message, a sixth of its cost, and connects another to wait for some.
    """

    class Channel(transport.Channel):  # type: ignore[misc, name-defined]
        _sender: Any = None

        def _create_client(self, asynchronous: bool = False) -> Any:
            # A channel that reconnects has a new pool.
            if self._sender is None or self._sender.connection_pool is not self.pool:
                self._sender = super()._create_client()
            return self._sender

    return type("Transport", (transport,), {"Channel": Channel})


@cache
def _consuming(transport: type[Any]) -> type[Any]:
    """A transport that waits for long, and stops at once."""

    class Channel(transport.Channel):  # type: ignore[misc, name-defined]
        #: The server's number of the connection that waits; None: not asked yet.
        _number: int | None = None
        _pool: Any

        def _connparams(self, asynchronous: bool = False) -> Any:
            """Without PING before each BRPOP, whose answer kombu expects in time anyway."""
            found = super()._connparams(asynchronous)
            return {**found, "health_check_interval": 0} if asynchronous else found

        def _on_connection_disconnect(self, connection: Any) -> None:
            self._number = None
            super()._on_connection_disconnect(connection)

        def _brpop_start(self, timeout: float | None = None) -> None:
            if self._number is None:
                self._number = _number(self.client.connection)
                # What declared the queues is not needed any more.
                pool, self._pool = self._pool, None
                if pool is not None:
                    pool.disconnect()
            super()._brpop_start(timeout)

        def close(self) -> None:
            """Close; a message that has come meanwhile is taken."""
            if self._in_poll and self._number:
                self.socket_timeout = _LAST_WORD
                with suppress(redis.RedisError), self.conn_or_acquire() as client:
                    client.client_unblock(self._number)
            super().close()

    return type("Transport", (transport,), {"Channel": Channel})


def _number(connection: Any) -> int:
    """The server's number of a connection; 0: it may not ask, and waits until BRPOP ends."""
    try:
        connection.send_command("CLIENT", "ID", check_health=False)
        return int(connection.read_response())
    except redis.ResponseError as error:
        log.debug("cannot stop waiting for messages before it is over: %s", error)
        return 0
