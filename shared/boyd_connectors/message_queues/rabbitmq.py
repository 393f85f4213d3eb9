"""RabbitMQ: queues by its management API, and dead letters by AMQP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from boyd.models import JsonObject
from boyd.plugin import Context
from boyd.plugins.http_service import HttpAccess, HttpService, ServiceError
from boyd.settings.validation import BaseUrl
from boyd_connectors.message_queues.message_queue import (
    ChangeLost,
    MessageQueue,
    QueueError,
    excerpt,
)

if TYPE_CHECKING:
    import amqp


#: Queues on one page, and the most pages.
PAGE, PAGES = 500, 20
TIME = 10.0
_COLUMNS = (
    "name,vhost,state,messages_ready,messages_unacknowledged,consumers,head_message_timestamp"
)
#: States of a queue that takes and gives no messages, and has no figures.
_DOWN = ("crashed", "down", "minority", "stopped", "terminated")


class RabbitOptions(BaseModel):
    """A RabbitMQ server with the management plugin, and one of its virtual hosts.

    Attributes:
        url: of the management API.
        vhost: the virtual host whose queues are watched.
        amqp: `host:port` for returning dead letters, which the management API cannot do safely.
        amqp_tls: whether that connection is encrypted, and its certificate checked.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: BaseUrl
    vhost: str = "/"
    amqp: str | None = Field(default=None, pattern=r"^[^/\s]+:\d{1,5}$")
    amqp_tls: bool = False


def has_amqp() -> bool:
    """True if the library for dead letters is installed."""
    return find_spec("amqp") is not None


class RabbitMQ:
    """A RabbitMQ as *options* describe it, with the rights of *access*."""

    def __init__(self, options: RabbitOptions, access: HttpAccess) -> None:
        self._options = options
        self._access = access
        self._service = HttpService(options.url, access, TIME)

    def queues(self, ctx: Context) -> Sequence[MessageQueue]:
        """The queues of the virtual host."""
        queues: list[MessageQueue] = []
        for page in range(1, PAGES + 1):
            query = {"page": page, "page_size": PAGE, "columns": _COLUMNS}
            answer = self._ask(ctx, "GET", f"/api/queues/{self._vhost}", params=query)
            queues += [_queue(item, ctx.now().timestamp()) for item in answer["items"]]
            if page >= answer["page_count"]:
                return queues
        raise QueueError(f"there are more than {PAGE * PAGES} queues in {self._options.vhost}")

    def samples(self, queue: str, number: int, ctx: Context) -> list[str]:
        """The beginnings of messages; they go back to where they were, marked as redelivered."""
        body = {
            "count": number,
            "ackmode": "ack_requeue_true",
            "encoding": "auto",
            "truncate": 4 * len(excerpt(" " * 1000)),
        }
        answer = self._ask(ctx, "POST", f"{self._path(queue)}/get", body=body)
        return [excerpt(str(message["payload"])) for message in answer]

    def check_purge(self, queue: str) -> None:
        """Nothing: every queue can be purged."""

    def check_requeue(self, queue: str, to: str | None, ctx: Context) -> None:
        """Refuse a queue that is the same, or not there."""
        if to == queue:
            raise QueueError(f"{queue} is where the messages are already")
        if to is not None and to not in {item.name for item in self.queues(ctx)}:
            raise QueueError(f"there is no queue {to}")

    def purge(self, queue: str, ctx: Context) -> int | None:
        """Delete the messages that wait; the server does not say how many."""
        # Its answer is empty, and it offers no JSON.
        self._ask(ctx, "DELETE", f"{self._path(queue)}/contents", headers={"Accept": "*/*"})
        return None

    def requeue(self, queue: str, to: str | None, most: int, ctx: Context) -> int:
        """Move messages, each to *to* or where it came from.

        A message is removed when the server has confirmed the copy. If the connection breaks in
        between, it is in both queues.
        """
        moved = 0
        with self._connect() as (connection, errors):
            try:
                channel = connection.channel()
                while moved < most and (message := channel.basic_get(queue)) is not None:
                    target = to or _origin(message.headers)
                    if target == queue:
                        raise QueueError(f"{queue} is where the messages are already")
                    # Publishing to a queue that does not exist would lose the message.
                    channel.queue_declare(target, passive=True)
                    channel.basic_publish_confirm(message, routing_key=target, mandatory=True)
                    channel.basic_ack(message.delivery_tag)
                    moved += 1
            except errors as error:
                kind = QueueError if connection.connected else ChangeLost
                raise kind(f"{self._options.amqp}: moved {moved}, then: {error}") from None
        return moved

    @contextmanager
    def _connect(self) -> Iterator[tuple[amqp.Connection, tuple[type[Exception], ...]]]:
        import amqp

        access, options = self._access, self._options
        if options.amqp is None:
            raise QueueError("requeue needs the option rabbitmq.amqp")
        connection = amqp.Connection(
            host=options.amqp,
            userid=access.username or "guest",
            password=access.password.read() if access.password else "guest",
            virtual_host=options.vhost,
            ssl=_tls(access, options.amqp) if options.amqp_tls else False,
            confirm_publish=True,
            connect_timeout=TIME,
            read_timeout=TIME,
            write_timeout=TIME,
        )
        errors = (amqp.AMQPError, OSError, QueueError)
        try:
            connection.connect()
        except errors as error:
            raise QueueError(f"{options.amqp} cannot be used: {error}") from None
        try:
            yield connection, errors
        finally:
            with suppress(*errors):
                connection.close()
            connection.collect()

    @property
    def _vhost(self) -> str:
        return quote(self._options.vhost, safe="")

    def _path(self, queue: str) -> str:
        return f"/api/queues/{self._vhost}/{quote(queue, safe='')}"

    def _ask(self, ctx: Context, method: Any, path: str, **more: Any) -> Any:
        try:
            return self._service.send(ctx, method, path, **more)
        except ServiceError as error:
            lost = error.lost and method != "GET"
            raise (ChangeLost if lost else QueueError)(str(error)) from None


def _queue(item: JsonObject, now: float) -> MessageQueue:
    read: Any = item
    # The server knows it only if publishers set timestamps, in seconds.
    since = read.get("head_message_timestamp")
    return MessageQueue(
        name=read["name"],
        depth=read.get("messages_ready", 0),
        unacked=read.get("messages_unacknowledged", 0),
        consumers=read.get("consumers", 0),
        down=read["state"] if read.get("state") in _DOWN else "",
        age=max(0.0, now - since) if isinstance(since, int | float) else None,
    )


def _origin(headers: Any) -> str:
    """The queue in which a message died last."""
    deaths = (headers or {}).get("x-death") or [{}]
    name = deaths[0].get("queue")
    if not name:
        raise QueueError("a message does not say where it came from: give the parameter `to`")
    return str(name)


def _tls(access: HttpAccess, address: str) -> dict[str, Any]:
    return {
        "ca_certs": str(access.ca_file) if access.ca_file else None,
        "certfile": str(access.client_cert) if access.client_cert else None,
        "keyfile": str(access.client_key) if access.client_key else None,
        "server_hostname": address.rpartition(":")[0],
    }
