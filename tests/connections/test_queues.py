"""The connector `queues` with a real RabbitMQ, a real Redis and messages of a real Celery."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import amqp
import celery
import pytest
import redis
import requests

from boyd_connectors.message_queues.message_queue import ChangeLost, QueueError
from boyd_connectors.message_queues.plugin import Queues
from connection_kit import ConnectedAgent, program
from harness import Deployment, free_port, wait_until
from plugin_kit import Rig, data_of
from redis_kit import RedisServer

pytestmark = [pytest.mark.real, pytest.mark.long]


class Rabbit:
    """A private RabbitMQ with its management API; as root it runs as another user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.amqp, dist, names = (free_port() for _ in range(4))
        (folder / "plugins").write_text("[rabbitmq_management].\n")
        (folder / "rabbit.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.amqp}\n"
            f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.port}\n"
            "collect_statistics_interval = 500\n"
        )
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"boyd{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(dist),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbit.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        }
        self._user = "rabbitmq" if os.geteuid() == 0 else None
        if self._user:
            for path in (folder, *folder.iterdir()):
                shutil.chown(path, self._user)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        [server] = Path("/usr/lib/rabbitmq/lib").glob("*/sbin/rabbitmq-server")
        self._process = subprocess.Popen(
            [server],
            user=self._user,
            env=self._environment,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until(self._answers, 60)

    def kill(self) -> None:
        """Kill it."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """Kill it, and the daemon that it has started, which ends when it knows no server."""
        self.kill()
        [daemon] = Path("/usr/lib/erlang").glob("erts-*/bin/epmd")
        wait_until(
            lambda: (
                b"Killed"
                in subprocess.run(
                    [daemon, "-kill"], env=self._environment, capture_output=True
                ).stdout
            )
        )

    @contextmanager
    def channel(self) -> Iterator[amqp.Channel]:
        with amqp.Connection(host=f"127.0.0.1:{self.amqp}", confirm_publish=True) as connection:
            yield connection.channel()

    def _answers(self) -> bool:
        assert self._process.poll() is None
        # It answers HTTP a while before it takes connections of AMQP, and longer on a busy machine.
        try:
            with self.channel():
                url = f"http://127.0.0.1:{self.port}/api/queues"
                return requests.get(url, auth=("guest", "guest"), timeout=5).ok
        except (requests.RequestException, OSError, amqp.AMQPError):
            return False


@pytest.fixture(scope="module")
def rabbit() -> Iterator[Rabbit]:
    """A RabbitMQ; missing: skipped here, failed in CI."""
    program("rabbitmq-server", "rabbitmq-server")
    with tempfile.TemporaryDirectory(prefix="boyd-rabbit-") as folder:
        rabbit_broker = Rabbit(Path(folder))
        rabbit_broker.start()
        try:
            with rabbit_broker.channel() as channel:
                letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
                channel.queue_declare("work", durable=True, auto_delete=False, arguments=letters)
                channel.queue_declare("dead", durable=True, auto_delete=False)
            yield rabbit_broker
        finally:
            rabbit_broker.end()


@pytest.fixture
def password(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "password").write_text("guest")
    return {"username": "guest", "password": {"file": str(tmp_path / "password")}}


def options(rabbit: Rabbit, password: dict[str, Any]) -> dict[str, Any]:
    address = {"url": f"http://127.0.0.1:{rabbit.port}", "amqp": f"127.0.0.1:{rabbit.amqp}"}
    actions: dict[str, Any] = {"purge": {}, "requeue": {}}
    return {"rabbitmq": address, "access": password, "actions": actions, "sample_messages": 2}


def publish(channel: amqp.Channel, *texts: str) -> None:
    for text in texts:
        message = amqp.Message(text, delivery_mode=2)
        channel.basic_publish_confirm(message, routing_key="work")


def depth(rig: Rig, queue: str) -> int:
    [tool] = rig.host.tools.values()
    depths = {row["queue"]: row["depth"] for row in tool.call("run", ctx=rig.ctx)}
    return int(depths[queue])


def test_dead_letters_go_back_and_a_queue_without_consumers_is_purged(
    rabbit: Rabbit, password: dict[str, Any]
) -> None:
    rig = Rig(Queues(samples=1, max_depth=3, **options(rabbit, password)))
    with rabbit.channel() as channel:
        publish(channel, "one", "two", "three")
        for _ in range(3):
            message = wait_until(lambda: channel.basic_get("work"))
            channel.basic_reject(message.delivery_tag, requeue=False)
        wait_until(lambda: depth(rig, "dead") == 3)
        [row] = data_of(rig.observe(), "no-consumer")
        assert (row["queue"], row["consumers"]) == ("dead", 0)
        assert [each_depth["queue"] for each_depth in data_of(rig.observe(), "depth")] == ["dead"]

        params = {"queue": "dead", "at_most": 2}
        preview = rig.act("requeue", params, "dry_run")
        assert preview["would move messages"] == 2
        assert preview["samples"] == ["one", "two"]
        output = rig.act("requeue", params)
        assert output["moved"] == 2
        wait_until(lambda: rig.verify("requeue", params, output).verdict == "effective")
        assert [channel.basic_get("work", no_ack=True).body for _ in range(2)] == ["one", "two"]

        for function in ("dry_run", "execute"):
            publish(channel, "four", "five")
            wait_until(lambda: depth(rig, "work") >= 2)
            with pytest.raises(QueueError, match="more than 1: none was deleted"):
                rig.act("purge", {"queue": "work", "at_most": 1}, function)
        params = {"queue": "work", "at_most": 10}
        assert rig.act("purge", params, "dry_run")["samples"] == ["four", "five"]
        wait_until(lambda: depth(rig, "work") == 4)
        output = rig.act("purge", params)
        wait_until(lambda: rig.verify("purge", params, output).verdict == "effective")
        assert channel.basic_get("work") is None


def test_messages_are_not_moved_to_a_queue_that_does_not_exist(
    rabbit: Rabbit, password: dict[str, Any]
) -> None:
    rig = Rig(Queues(**options(rabbit, password)))
    with rabbit.channel() as channel:
        publish(channel, "kept")
        wait_until(lambda: depth(rig, "work") == 1)
        for function in ("dry_run", "execute"):
            with pytest.raises(QueueError, match="there is no queue nowhere"):
                rig.act("requeue", {"queue": "work", "to": "nowhere"}, function)
        with pytest.raises(QueueError, match="does not say where it came from"):
            rig.act("requeue", {"queue": "work"})
        assert wait_until(lambda: channel.basic_get("work", no_ack=True)).body == "kept"


def test_a_message_without_an_origin_ends_a_move_that_says_how_far_it_came(
    rabbit: Rabbit, password: dict[str, Any]
) -> None:
    rig = Rig(Queues(**options(rabbit, password)))
    with rabbit.channel() as channel:
        for queue in ("work", "dead"):  # what other tests have left
            channel.queue_purge(queue)
        publish(channel, "one", "two")
        for _ in range(2):
            message = wait_until(lambda: channel.basic_get("work"))
            channel.basic_reject(message.delivery_tag, requeue=False)
        wait_until(lambda: depth(rig, "dead") == 2)
        channel.basic_publish_confirm(amqp.Message("three"), routing_key="dead")
        wait_until(lambda: depth(rig, "dead") == 3)
        with pytest.raises(QueueError, match="moved 2, then: a message does not say where"):
            rig.act("requeue", {"queue": "dead"})
        for queue, body in (("dead", "three"), ("work", "one"), ("work", "two")):
            assert wait_until(partial(channel.basic_get, queue, no_ack=True)).body == body


def test_a_rabbitmq_killed_midway_loses_no_message(
    rabbit: Rabbit, password: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(Queues(**options(rabbit, password)))
    with rabbit.channel() as channel:
        publish(channel, "one", "two")
    wait_until(lambda: depth(rig, "work") == 2)
    acknowledge, killed = amqp.Channel.basic_ack, threading.Event()

    def kill_first(channel: amqp.Channel, *arguments: Any, **more: Any) -> Any:
        if not killed.is_set():
            killed.set()
            rabbit.kill()
        return acknowledge(channel, *arguments, **more)

    monkeypatch.setattr(amqp.Channel, "basic_ack", kill_first)
    result = rig.act("requeue", {"queue": "work", "to": "dead"})
    assert result.unknown
    assert "it may have taken effect" in result.error
    [lost] = data_of(rig.observe(), "unreachable")
    assert "cannot be reached" in lost["error"]
    with pytest.raises(QueueError, match="cannot be reached"):
        rig.verify("requeue", {"queue": "work"}, {"before": 2})

    rabbit.start()
    wait_until(lambda: depth(rig, "work") >= 1)
    assert not data_of(rig.observe(), "unreachable")
    with rabbit.channel() as channel:
        bodies = [*drain(channel, "work"), *drain(channel, "dead")]
    assert set(bodies) >= {"one", "two"}


def drain(channel: amqp.Channel, queue: str) -> Iterator[str]:
    while (message := channel.basic_get(queue, no_ack=True)) is not None:
        yield str(message.body)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Redis beside the one of the tests."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server.port


@pytest.fixture
def client(broker: int) -> Iterator[redis.Redis]:
    with redis.Redis(port=broker) as redi:
        redi.flushall()
        yield redi


def redis_rig(port: int, **more: Any) -> Rig:
    address = {"host": "127.0.0.1", "port": port, "lists": ["celery", "dead"], "celery": True}
    address["streams"] = more.pop("streams", {})
    actions: dict[str, Any] = {"purge": {}, "requeue": {}}
    return Rig(Queues(redis=address, actions=actions, samples=1, **more))


def test_tasks_of_celery_that_nobody_takes_are_seen_and_purged(
    broker: int, client: redis.Redis
) -> None:
    rig = redis_rig(broker, max_age=60, max_growth=10)
    with celery.Celery(broker=f"redis://127.0.0.1:{broker}/0") as app:
        app.send_task("pay", priority=0)
        rig.observe()
        for priority in (0, 3, 9):
            app.send_task("pay", priority=priority)
    rig.clock.forward(10)
    [growing] = data_of(rig.observe(), "growth")
    assert (growing["queue"], growing["depth"], growing["growthPerMinute"]) == ("celery", 4, 18.0)
    rig.clock.forward(60)
    [old] = data_of(rig.observe(), "age")
    assert (old["queue"], old["ageSeconds"]) == ("celery", 70)

    params = {"queue": "celery", "at_most": 4}
    assert rig.act("purge", params, "dry_run") == {"would delete messages": 4, "samples": []}
    output = rig.act("purge", params)
    assert output["deleted"] == 4
    assert rig.verify("purge", params, output).verdict == "effective"
    assert not client.keys("celery*")


def test_messages_that_were_taken_and_not_acknowledged_are_counted(
    broker: int, client: redis.Redis
) -> None:
    client.hset("unacked", mapping={"a": "1", "b": "2"})
    client.zadd("unacked_index", {"a": client.time()[0] - 100, "b": client.time()[0]})
    rig = redis_rig(broker, max_unacked=2, max_age=90)
    assert data_of(rig.observe(), "unacked")[0]["unacked"] == 2
    assert data_of(rig.observe(), "age")[0]["queue"] == "(celery)"


def test_dead_letters_in_a_list_move_oldest_first(broker: int, client: redis.Redis) -> None:
    client.lpush("dead", *(str(number) for number in range(250)))
    rig = redis_rig(broker)
    params = {"queue": "dead", "to": "celery", "at_most": 201}
    output = rig.act("requeue", params)
    assert output["moved"] == 201
    assert rig.verify("requeue", params, output).verdict == "effective"
    assert client.rpop("celery") == b"0"
    assert (client.llen("celery"), client.llen("dead")) == (200, 49)
    for function in ("dry_run", "execute"):
        with pytest.raises(QueueError, match="not among the lists"):
            rig.act("requeue", {"queue": "dead", "to": "elsewhere"}, function)
        with pytest.raises(QueueError, match="give `to`"):
            rig.act("requeue", {"queue": "dead"}, function)


def test_messages_of_every_priority_are_shown_and_moved(broker: int, client: redis.Redis) -> None:
    urgent, later = "dead\x06\x163", "dead\x06\x169"
    client.lpush(urgent, "two", "three")
    client.lpush(later, "four")
    rig = redis_rig(broker, max_age=60, sample_messages=2)
    rig.observe()
    rig.clock.forward(70)
    assert [row["queue"] for row in data_of(rig.observe(), "age")] == ["dead"]

    params = {"queue": "dead", "to": "celery", "at_most": 2}
    assert rig.act("requeue", params, "dry_run")["samples"] == ["two", "three"]
    output = rig.act("requeue", params)
    assert output["moved"] == 2
    assert rig.verify("requeue", params, output).verdict == "effective"
    assert client.lrange("celery\x06\x163", 0, -1) == [b"three", b"two"]
    assert client.lrange(later, 0, -1) == [b"four"]


def test_a_stream_without_consumers_and_one_that_lags(broker: int, client: redis.Redis) -> None:
    client.xgroup_create("orders", "billing", mkstream=True)
    for number in range(5):
        client.xadd("orders", {"number": number}, id=f"1000-{number + 1}")
    rig = redis_rig(broker, streams={"orders": "billing"}, max_depth=5, max_age=60)
    observations = rig.observe()
    assert [row["queue"] for row in data_of(observations, "no-consumer")] == ["orders"]
    assert data_of(observations, "depth")[0]["depth"] == 5
    assert data_of(observations, "age")[0]["ageSeconds"] > 60
    client.xreadgroup("billing", "one", {"orders": ">"}, count=3)
    [stream] = [queue for queue in rig.plugin._queues(rig.ctx) if queue.name == "orders"]  # type: ignore[attr-defined]
    assert (stream.depth, stream.unacked, stream.consumers) == (2, 3, 1)


def test_a_queue_that_cannot_be_read_hides_no_other(broker: int, client: redis.Redis) -> None:
    client.lpush("dead", "1", "2")
    client.set("celery", "no list")
    client.set("unacked", "no hash")
    client.xgroup_create("orders", "billing", mkstream=True)
    client.xadd("orders", {"number": 1})
    streams = {"late": "billing", "orders": "billing", "dead letters": "billing"}
    client.xadd("dead letters", {"number": 1})
    rig = redis_rig(broker, streams=streams, max_depth=2)
    observations = rig.observe()

    assert not data_of(observations, "unreachable")
    down = {row["queue"]: row["state"] for row in data_of(observations, "down")}
    assert down.keys() == {"celery", "(celery)", "late", "dead letters"}
    assert "no such key" in down["late"]
    assert "has no group billing" in down["dead letters"]
    assert [row["queue"] for row in data_of(observations, "depth")] == ["dead"]
    assert [row["queue"] for row in data_of(observations, "no-consumer")] == ["orders"]


def test_a_key_that_is_no_list_is_not_purged(broker: int, client: redis.Redis) -> None:
    client.set("celery", "no list")
    for function in ("dry_run", "execute"):
        with pytest.raises(QueueError, match="nobody knows what is in celery"):
            redis_rig(broker).act("purge", {"queue": "celery", "at_most": 9}, function)
    assert client.get("celery") == b"no list"


def test_a_stream_that_comes_to_be_does_not_grow(broker: int, client: redis.Redis) -> None:
    rig = redis_rig(broker, streams={"late": "billing"}, max_growth=1)
    rig.observe()
    client.xgroup_create("late", "billing", mkstream=True)
    for number in range(50):
        client.xadd("late", {"number": number})
    rig.clock.forward(60)

    assert not data_of(rig.observe(), "growth")


def test_a_redis_that_hangs_is_given_up(
    broker: int, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from boyd_connectors.message_queues import redis_broker

    monkeypatch.setattr(redis_broker, "TIME", 0.5)
    rig = redis_rig(broker)
    server = rig.plugin._server("purge")  # type: ignore[attr-defined]
    client.lpush("celery", "one")

    def lose_reply() -> None:
        with server._connect(changes=True) as connection:
            client.client_pause(2000)
            connection.delete("celery")

    with pytest.raises(ChangeLost):
        lose_reply()
    assert data_of(rig.observe(), "unreachable")
    client.client_unpause()
    assert not data_of(rig.observe(), "unreachable")


def test_an_agent_requeues_with_approval(
    broker: int, client: redis.Redis, deployment: Deployment
) -> None:
    text = f"""
    id = "post"
    [[plugins]]
    use = "queues"
    [plugins.options]
    samples = 1
    max_depth = 3
    redis = {{ host = "127.0.0.1", port = {broker}, lists = ["celery", "dead"] }}
    [plugins.options.actions.requeue]
    [plugins.options.actions.purge]
    """
    client.lpush("dead", "a", "b", "c")
    agent = ConnectedAgent(deployment, text)
    assert agent.observed("queues/depth")["queue"] == "dead"
    item, execution = agent.perform("queues:requeue", queue="dead", to="celery")
    assert item["preview"]["output"]["would move messages"] == 3
    verified = agent.verified(execution)
    assert verified["verdict"] == "effective"
    assert verified["evidence"] == "3 messages waited before, 0 do now"
    item, execution = agent.perform("queues:purge", queue="celery", atMost=3)
    assert item["autonomy"]["mode"] == "human-only"
    assert agent.verified(execution)["verdict"] == "effective"
    assert client.llen("celery") == 0
