"""The Celery app: its settings, its tasks, the dispatcher, and connections to the broker.

The broker may lose, duplicate or delay a message; correctness never depends on it. kombu's
connections are replaced by ones with fewer sockets and commands.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any
from urllib.parse import quote

import redis
from celery import Celery, Signature, chain, group
from celery.app.events import Events
from celery.events.dispatcher import EventDispatcher
from kombu import Connection
from kombu.connection import ConnectionPool, PooledConnection
from kombu.exceptions import OperationalError

from boyd.errors import ConfigError
from boyd.messaging.dispatcher import FOLLOWS, BatchHint
from boyd.models import Phase
from boyd.store.server.connection import Address, connect, mask_url, sentinel_options
from boyd.text import queues

connection_log = logging.getLogger("boyd.messaging.celery_app")

#: Seconds between attempts to connect; kombu waits up to 30.
_TRIES = {"interval_start": 0.5, "interval_step": 0.5, "interval_max": 5}
#: Seconds for which a process that ends waits for a broker that does not answer.
_LAST_WORD = 2.0
#: The settings of Celery that its own tools need.
WATCHED = ("worker_enable_remote_control", "worker_send_task_events", "task_send_sent_event")
#: Events of Celery that a process keeps while it cannot publish them.
_KEPT_EVENTS = 1000


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
        #: The server's number of the connection that waits, once asked for.
        _number: int | None = None
        _pool: Any

        def _connparams(self, asynchronous: bool = False) -> Any:
            """Skip the PING before each BRPOP: kombu expects the answer of that in time anyway."""
            params = super()._connparams(asynchronous)
            return {**params, "health_check_interval": 0} if asynchronous else params

        def _on_connection_disconnect(self, connection: Any) -> None:
            self._number = None
            super()._on_connection_disconnect(connection)

        def _brpop_start(self, timeout: float | None = None) -> None:
            if self._number is None:
                self._number = _number(self.client.connection)
                # The connections that declared the queues are no longer needed.
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
        connection_log.debug("cannot stop waiting for messages before it is over: %s", error)
        return 0


class _EventDispatcher(EventDispatcher):  # type: ignore[misc]
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Celery keeps all events that Redis refuses, until the process has no memory left.
        self._outbound_buffer: deque[Any] = deque(maxlen=_KEPT_EVENTS)


class _Events(Events):  # type: ignore[misc]
    dispatcher_cls = _EventDispatcher


log = logging.getLogger("boyd.messaging.celery_app")

_PHASES: tuple[Phase, ...] = ("start", "observe", "orient", "decide", "act", "complete")

TASKS: dict[Phase, str] = {phase: f"boyd.{phase}" for phase in _PHASES}

#: The task that takes a job.
JOB = "boyd.job"

_TRANSPORT = {
    "priority_steps": [0],
    "socket_timeout": 15,
    "socket_connect_timeout": 3,
    "socket_keepalive": True,
    # A worker that waits for an answer longer than both together reconnects.
    "health_check_interval": 3,
    "polling_interval": 5,
    # Messages are hints that our sweeper sends again, so none is kept until it is acknowledged.
    "ack_emulation": False,
}


#: Connections that send messages, of a process; threads take turns.
_SENDERS = 4


def make_app(broker_url: str, events: bool = False) -> Celery:
    """A Celery app that publishes and consumes Boyd's tasks; connects when first used.

    With *events* it publishes what happens to tasks and workers, and takes part in remote control.

    Raises:
        ConfigError: *broker_url* is not a Redis URL, or has an option that does not exist.
    """
    try:
        address = Address.of(broker_url)
    except ValueError as error:
        raise ConfigError(f"broker_url {mask_url(broker_url)!r} cannot be used: {error}") from None
    if address.nodes:
        raise ConfigError(
            "a Redis Cluster keeps state and cannot carry messages: "
            "set BOYD_BROKER_URL to another Redis"
        )
    connect(broker_url, setting="broker_url").close()  # refuses what only a connection would
    app = Celery("boyd", broker=_kombu_url(address), events=_Events, set_as_current=False)
    app.amqp.Connection = BrokerConnection
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        event_serializer="json",
        # Celery stores nothing: Boyd's state has its own keys in Redis.
        result_backend=None,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        # Acknowledge early: redelivery would double running tasks, and our sweeper resends anyway.
        task_acks_late=False,
        worker_prefetch_multiplier=1,
        broker_transport_options=_TRANSPORT | _sentinel_transport(address),
        broker_use_ssl=address.tls and {"ssl_cert_reqs": "required", **address.ssl_options},
        broker_pool_limit=_SENDERS,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # A demoted server answers consumers with an error before it disconnects.
        broker_channel_error_retry=True,
        # A hint that cannot be sent is sent by the sweeper: fail fast instead of blocking.
        task_publish_retry=True,
        task_publish_retry_policy={"max_retries": 1, "interval_start": 0, "interval_step": 0},
        **dict.fromkeys(WATCHED, events),
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        task_default_queue="boyd.unused",
        enable_utc=True,
    )
    return app


def _kombu_url(address: Address) -> str:
    """The same address in kombu's syntax, without options that it does not support."""
    options = address.options
    db = options.get("db", 0)
    if "path" in options:
        path = quote(options["path"])
        return f"redis+socket://{_user(options)}{path}?virtual_host={db}"
    places = address.sentinels or ((options.get("host", "localhost"), options.get("port", 6379)),)
    scheme = "sentinel" if address.sentinels else "redis"
    return ";".join(
        f"{scheme}://{_user(options)}{_bracket(host)}:{port}/{db}" for host, port in places
    )


def _user(options: Mapping[str, Any]) -> str:
    name, password = (quote(options.get(part, ""), safe="") for part in ("username", "password"))
    return f"{name}:{password}@" if password else f"{name}@" if name else ""


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _sentinel_transport(address: Address) -> dict[str, Any]:
    if not address.sentinels:
        return {}
    return {"master_name": address.service, "sentinel_kwargs": sentinel_options(address)}


#: The version of the format of messages: of what their arguments mean.
FORMAT = 1


class CeleryDispatcher:
    """Publishes hints as Celery messages; implements `Dispatcher`."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def send(
        self, agent_id: str, iteration: int, epoch: int, phase: Phase, queue: str | None = None
    ) -> None:
        """Publish the chain of phases that begins with *phase*."""
        self._publish(self.chain_from(agent_id, iteration, epoch, phase, queue))

    def fan_out(self, agent_id: str, iteration: int, batches: Sequence[BatchHint]) -> None:
        """Publish the observe phase: a group with one task per batch."""
        members = [
            self._task("observe", agent_id, hint.queue, iteration, hint.batch, hint.attempt)
            for hint in batches
        ]
        self._publish(group(members, app=self._app))

    def job(self, agent_id: str, name: str, attempt: int, queue: str | None) -> None:
        """Publish that a job is due."""
        where = queues.full_name(queue or queues.ACT, agent_id)
        arguments = (agent_id, name, attempt)
        self._publish(
            self._app.signature(JOB, args=arguments, immutable=True, options=_options(where))
        )

    def chain_from(
        self, agent_id: str, iteration: int, epoch: int, phase: Phase, queue: str | None
    ) -> Signature:
        """*phase* and what always follows it, each an immutable signature of ids."""
        first = self._task(phase, agent_id, queue or _usual_queue(phase), iteration, epoch)
        following = FOLLOWS.get(phase)
        if following is None:
            return first
        then = self._task(following, agent_id, queues.LOOP, iteration, epoch)
        return chain(first, then, app=self._app)

    def _task(self, phase: Phase, agent_id: str, queue: str, *ids: int) -> Signature:
        name = queues.full_name(queue, agent_id)
        return self._app.signature(
            TASKS[phase], args=(agent_id, *ids), immutable=True, options=_options(name)
        )

    def _publish(self, canvas: Signature) -> None:
        try:
            canvas.apply_async()
        # After a failed reconnect kombu keeps a channel without a connection.
        except (OperationalError, OSError, AttributeError) as error:
            log.warning("could not send a message; it will be resent: %s", error)


def _options(queue: str) -> dict[str, Any]:
    # Redis needs no queue to be declared, and nobody reads the arguments in words.
    unneeded = {"declare": [], "argsrepr": "", "kwargsrepr": ""}
    return {"queue": queue, "headers": {"formatVersion": FORMAT}, **unneeded}


def _usual_queue(phase: Phase) -> str:
    return queues.ACT if phase == "act" else queues.LOOP
