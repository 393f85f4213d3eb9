"""The plugin `queues`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from boyd.errors import PluginError
from boyd.models import ActionResult, EffectVerdict, JsonObject, Model, Observation
from boyd.plugin import Connector, Context, Observer, action, tool
from boyd.plugins.http_service import HttpAccess
from boyd.plugins.results import uncertain
from boyd_connectors.connector_parts import CheckReport, Sample, names_in_alarm
from boyd_connectors.message_queues.message_queue import (
    ChangeLost,
    MessageQueue,
    MessageServer,
    QueueError,
)
from boyd_connectors.message_queues.rabbitmq import RabbitMQ, RabbitOptions, has_amqp
from boyd_connectors.message_queues.redis_broker import RedisBroker, RedisLogin, RedisOptions

#: The most queues that are remembered from one look to the next.
MAX_REMEMBERED = 2000


class PurgeParams(Model):
    """A queue, and the most messages that may be deleted: with more, nothing is."""

    queue: str = Field(min_length=1, max_length=500)
    at_most: int = Field(ge=1)


class RequeueParams(Model):
    """A queue with dead letters, the queue to move them to, and the most messages.

    Without `to`, RabbitMQ's messages go back to the queues in which they died.
    """

    queue: str = Field(min_length=1, max_length=500)
    to: str | None = Field(default=None, min_length=1, max_length=500)
    at_most: int = Field(default=100, ge=1, le=10_000)


class QueueAccess(HttpAccess):
    """Credentials for RabbitMQ or Redis; the latter takes a password without a user, too."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.username and self.password is None:
            raise ValueError("username needs a password")
        return self

    def of_redis(self) -> RedisLogin:
        """The same for Redis."""
        return RedisLogin(username=self.username, password=self.password)


class QueueActions(BaseModel):
    """The actions that are enabled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    purge: QueueAccess | None = None
    requeue: QueueAccess | None = None


class Queues(Connector):
    """Watches the queues of RabbitMQ, Celery and Redis, empties them and returns dead letters."""

    id = "queues"

    class Options(Connector.Options):
        """The plugin's options; either `rabbitmq` or `redis`.

        Attributes:
            rabbitmq: the RabbitMQ server to watch.
            redis: the Redis server to watch.
            include: patterns of the names of the queues to watch.
            exclude: patterns of queues that are not watched.
            max_depth: how many messages may wait in a queue.
            max_growth: by how many messages a minute a queue may grow.
            max_age: how many seconds the oldest message may wait.
            max_unacked: how many messages may be taken and not acknowledged.
            sample_messages: how many messages the preview of a purge shows.
        """

        rabbitmq: RabbitOptions | None = None
        redis: RedisOptions | None = None
        access: QueueAccess = QueueAccess()
        interval: float = Field(default=30.0, gt=0)
        queue: str | None = None
        include: list[str] = Field(default=["*"])
        exclude: list[str] = Field(default_factory=list)
        max_depth: int = Field(default=1000, ge=1)
        max_growth: float = Field(default=60.0, gt=0)
        max_age: float = Field(default=600.0, gt=0)
        max_unacked: int = Field(default=1000, ge=1)
        samples: int = Field(default=2, ge=1, le=100)
        sample_messages: int = Field(default=0, ge=0, le=10)
        max_items: int = Field(default=20, ge=1, le=200)
        actions: QueueActions = QueueActions()

        @model_validator(mode="after")
        def _one(self) -> Self:
            if (self.rabbitmq is None) == (self.redis is None):
                raise ValueError("needs either `rabbitmq` or `redis`")
            return self

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        own = self.options
        if own.actions.requeue and own.rabbitmq and not (own.rabbitmq.amqp and has_amqp()):
            text = "actions.requeue needs rabbitmq.amqp and `pip install 'boyd[rabbitmq]'`"
            raise PluginError(self.id, text)
        self.components = (
            Observer(
                name="depths",
                description="Look at depth, growth, age and consumers of the queues.",
                interval=own.interval,
                observe=self.depths,
            ),
        )

    def depths(self, ctx: Context) -> list[Observation]:
        """Observe queues that are long, grow, are not worked on, or have no consumers."""
        report = CheckReport(ctx, self.options.max_items)
        try:
            queues = self._queues(ctx)
        except QueueError as error:
            report.add("unreachable", "critical", {"error": str(error)})
            return report.observations("summary", queues=0)
        ages, growth = self._compare([queue for queue in queues if not queue.down], ctx)
        by_name = {queue.name: queue for queue in queues}
        down = {queue.name for queue in queues if queue.down}
        samples = self._samples(queues, ages, growth)
        alarms = names_in_alarm(
            ctx,
            "alarms",
            samples,
            self.options.samples,
            lambda alarm: alarm.partition(" ")[2] in down,
        )
        for alarm in sorted(alarms):
            kind, _, name = alarm.partition(" ")
            data = by_name[name].data()
            age = ages.get(name)
            data |= {} if age is None else {"ageSeconds": round(age)}
            data |= {"growthPerMinute": round(growth[name], 1)} if name in growth else {}
            report.add(kind, "error" if kind in ("no-consumer", "down") else "warning", data)
        waiting = sum(queue.depth for queue in queues)
        return report.observations("summary", queues=len(queues), messages=waiting)

    @action(
        risk="critical",
        reversibility="irreversible",
        autonomy="human-only",
        target="queue",
        timeout=60,
    )
    def purge(self, params: PurgeParams, ctx: Context) -> JsonObject | ActionResult:
        """Delete all messages that wait in a queue; those that consumers have taken stay."""
        server = self._server("purge")
        before = self._countable(params, ctx)
        server.check_purge(params.queue)
        try:
            deleted = server.purge(params.queue, ctx)
        except ChangeLost as error:
            return uncertain(error)
        return {"queue": params.queue, "before": before, "deleted": deleted}

    @purge.dry_run
    def _would_purge(self, params: PurgeParams, ctx: Context) -> JsonObject:
        server = self._server()
        depth = self._countable(params, ctx)
        server.check_purge(params.queue)
        number = self.options.sample_messages
        samples = server.samples(params.queue, number, ctx) if number else []
        return {"would delete messages": depth, "samples": list(samples)}

    @purge.verify(within=60, every=5)
    def _is_purged(self, params: PurgeParams, result: ActionResult, ctx: Context) -> EffectVerdict:
        return self._verdict(params.queue, result, ctx)

    @action(
        risk="medium",
        reversibility="irreversible",
        autonomy="approval-required",
        target="queue",
        timeout=120,
    )
    def requeue(self, params: RequeueParams, ctx: Context) -> JsonObject | ActionResult:
        """Move dead letters back to work, at least once each; consumers may see one twice."""
        server = self._server("requeue")
        before = self._depth(params.queue, ctx)
        self._server().check_requeue(params.queue, params.to, ctx)
        try:
            moved = server.requeue(params.queue, params.to, params.at_most, ctx)
        except ChangeLost as error:
            return uncertain(error)
        # The figures of RabbitMQ are a few seconds old.
        return {"queue": params.queue, "before": max(before, moved), "moved": moved}

    @requeue.dry_run
    def _would_requeue(self, params: RequeueParams, ctx: Context) -> JsonObject:
        server = self._server()
        depth = self._depth(params.queue, ctx)
        server.check_requeue(params.queue, params.to, ctx)
        number = self.options.sample_messages
        samples = server.samples(params.queue, number, ctx) if number else []
        to = params.to or "where each has died"
        return {
            "would move messages": min(depth, params.at_most),
            "to": to,
            "samples": list(samples),
        }

    @requeue.verify(within=60, every=5)
    def _is_requeued(
        self, params: RequeueParams, result: ActionResult, ctx: Context
    ) -> EffectVerdict:
        return self._verdict(params.queue, result, ctx)

    @tool()
    def list_queues(self, ctx: Context) -> list[JsonObject]:
        """List the longest queues with depth, unacknowledged messages, consumers and age."""
        queues = sorted(self._queues(ctx), key=lambda queue: -queue.depth)
        return [queue.data() for queue in queues[:200]]

    def _server(self, action: str | None = None) -> MessageServer:
        """The server, with the rights of *action* or those for reading."""
        options = self.options
        access: QueueAccess = self.access_of(action, options.access) if action else options.access
        if options.rabbitmq:
            return RabbitMQ(options.rabbitmq, access)
        assert options.redis is not None
        return RedisBroker(options.redis, access.of_redis())

    def _queues(self, ctx: Context) -> Sequence[MessageQueue]:
        options = self.options
        return [
            queue
            for queue in self._server().queues(ctx)
            if _matches(queue.name, options.include) and not _matches(queue.name, options.exclude)
        ]

    def _depth(self, queue: str, ctx: Context) -> int:
        for item in self._server().queues(ctx):
            if item.name == queue and item.down:
                raise QueueError(f"nobody knows what is in {queue}: {item.down}")
            if item.name == queue:
                return item.depth
        raise QueueError(f"there is no queue {queue}")

    def _countable(self, params: PurgeParams, ctx: Context) -> int:
        depth = self._depth(params.queue, ctx)
        if depth > params.at_most:
            raise QueueError(
                f"{params.queue} has {depth} messages, more than {params.at_most}: none was deleted"
            )
        return depth

    def _verdict(self, queue: str, result: ActionResult, ctx: Context) -> EffectVerdict:
        depth = self._depth(queue, ctx)
        output: Any = result.output if isinstance(result.output, dict) else {}
        if "before" not in output:
            return EffectVerdict(verdict="cannot tell", evidence=f"{depth} messages wait")
        fewer = depth < output["before"] or depth == 0
        return EffectVerdict(
            verdict="effective" if fewer else "no effect",
            evidence=f"{output['before']} messages waited before, {depth} do now",
            final=fewer,
        )

    def _compare(
        self, queues: Iterable[MessageQueue], ctx: Context
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Ages and growths per minute, by what was there at an earlier look."""
        now = ctx.now()
        longest = sorted(queues, key=lambda queue: -queue.depth)[:MAX_REMEMBERED]
        current = {queue.name: [queue.depth, queue.head] for queue in longest}

        def change(stored: Any) -> Any:
            stored = stored or {}
            if ctx.iteration is not None and stored.get("iteration") == ctx.iteration:
                return stored
            then = stored.get("now", {})
            since = {
                name: stored["since"].get(name, stored["at"])
                for name, (_, head) in current.items()
                if head and then.get(name, [0, ""])[1] == head
            }
            at = now.isoformat()
            return {
                "iteration": ctx.iteration,
                "at": at,
                "then": then,
                "then_at": stored.get("at", at),
                "now": current,
                "since": since,
            }

        memory = ctx.state.update("looks", change)
        elapsed = (now - datetime.fromisoformat(memory["then_at"])).total_seconds()
        growth = {
            name: 60 * (depth - memory["then"][name][0]) / elapsed
            for name, (depth, _) in current.items()
            if name in memory["then"] and elapsed > 0
        }
        ages = {queue.name: queue.age for queue in longest if queue.age is not None}
        for name, since in memory["since"].items():
            ages[name] = (now - datetime.fromisoformat(since)).total_seconds()
        return ages, growth

    def _samples(
        self,
        queues: Iterable[MessageQueue],
        ages: dict[str, float],
        growth: dict[str, float],
    ) -> dict[str, Sample]:
        options = self.options
        samples: dict[str, Sample] = {}
        for queue in queues:
            samples[f"down {queue.name}"] = Sample(float(bool(queue.down)), 1, 1)
            if queue.down:  # nobody knows its figures
                continue
            idle = queue.consumers == 0 and queue.depth > 0
            samples[f"no-consumer {queue.name}"] = Sample(float(idle), 1, 1)
            samples[f"depth {queue.name}"] = _sample(queue.depth, options.max_depth)
            samples[f"unacked {queue.name}"] = _sample(queue.unacked or 0, options.max_unacked)
            samples[f"age {queue.name}"] = _sample(ages.get(queue.name, 0), options.max_age)
            samples[f"growth {queue.name}"] = _sample(growth.get(queue.name, 0), options.max_growth)
        return samples


def _sample(value: float, limit: float) -> Sample:
    return Sample(value, limit, 0.8 * limit)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
