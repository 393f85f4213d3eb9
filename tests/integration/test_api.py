"""The API as a process of its own, on a real Redis: streams, outages, recovery, a clean end."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from boyd.models import Actor
from boyd.models.investigation import Said
from boyd.store import Store, connect
from boyd.testing import ScriptedModel
from boyd.testing.model_server import Received, Reply, say
from harness import Deployment, free_port, wait_until
from redis_kit import RedisServer

pytestmark = pytest.mark.real

MAKER = Actor(principal="maker")


class Site:
    """A running API, and a key for it."""

    def __init__(self, deployment: Deployment, **environment: str) -> None:
        self.deployment = deployment
        self.port = free_port()
        deployment.environment.update(environment)
        self.pid = deployment.start("api", "api", "--port", str(self.port), ready=False)
        wait_until(self._answers, 20)
        _, text = deployment.store.api_keys.create("test", "tester", ["admin"], by=MAKER)
        self.headers = {"Authorization": f"Bearer {text}"}

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """A request on a connection of its own: (status, body, seconds it took)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        began = time.monotonic()
        sent = {**self.headers, **headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        text = answer.read()
        took = time.monotonic() - began
        connection.close()
        return answer.status, json.loads(text), took

    @contextmanager
    def stream(
        self, path: str = "/api/v0/events", **headers: str
    ) -> Iterator[http.client.HTTPResponse]:
        """The event stream of the only agent, or another one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, None, {**self.headers, **headers})
        answer = connection.getresponse()
        try:
            yield answer
        finally:
            # Both, for the response keeps the socket open.
            answer.close()
            connection.close()

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


def block(stream: http.client.HTTPResponse) -> dict[str, str]:
    """The next event: its fields; none at the end of the stream."""
    fields: dict[str, str] = {}
    while True:
        read = stream.readline().decode()
        line = read.rstrip("\n")
        if not read or (not line and fields):
            return fields
        name, _, value = line.partition(": ")
        if name:
            fields[name] = value


@pytest.fixture
def site(deployment: Deployment) -> Site:
    """An API with an agent `traced` and a worker for it."""
    deployment.worker("w", "agents.traced:traced")
    return Site(deployment)


def agent_id(site: Site) -> str:
    """The only agent."""
    [agent] = site.deployment.store.fleet.agents()
    return agent


def test_a_trigger_is_answered_when_a_worker_has_ended_the_iteration(site: Site) -> None:
    status, answer, _ = site.request("POST", "/api/v0/loop/trigger", {"context": "x"})

    assert status == 200
    assert answer["success"]
    assert answer["iteration"] == 1


def test_events_arrive_and_go_on_after_the_last_one(site: Site) -> None:
    with site.stream() as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        assert block(stream) == {"retry": "2000"}
        site.deployment.agent(agent_id(site)).loop_control.pause("first")
        first = block(stream)
    site.deployment.agent(agent_id(site)).loop_control.pause("second")
    with site.stream(**{"Last-Event-ID": first["id"]}) as stream:
        block(stream)
        second = block(stream)

    assert first["event"] == second["event"] == "agent.paused"
    assert json.loads(first["data"])["data"]["why"] == "first"
    assert json.loads(second["data"])["data"]["why"] == "second"


def test_clients_that_leave_give_their_place_back(site: Site) -> None:
    # More often than there are places: each comes back soon.
    for _ in range(20):
        wait_until(lambda: _opens(site))


def _opens(site: Site) -> bool:
    with site.stream() as stream:
        return stream.status == 200


def test_streams_that_stay_leave_room_for_others(deployment: Deployment) -> None:
    deployment.environment["BOYD_API__STREAMS"] = "8"
    deployment.worker("w", "agents.traced:traced")
    site = Site(deployment)
    streams = [site.stream() for _ in range(9)]
    opened = [stream.__enter__() for stream in streams]
    try:
        assert [stream.status for stream in opened] == [200] * 8 + [503]
        assert site.request("GET", "/api/v0/state")[0] == 200
    finally:
        for entered in streams:
            entered.__exit__(None, None, None)


def test_a_stopping_api_ends_streams_and_answers_requests(
    deployment: Deployment,
) -> None:
    site = Site(deployment)
    # Nobody works: the trigger waits until the process is told to stop.
    deployment.store.client.hset("boyd:{*}:agents", "idle", _entry("idle"))
    answers: list[Any] = []
    with site.stream() as stream:
        block(stream)
        thread = threading.Thread(
            target=lambda: answers.append(site.request("POST", "/api/v0/loop/trigger"))
        )
        thread.start()
        wait_until(lambda: deployment.agent("idle").loop_control.status().phase == "start")
        assert deployment.stop("api", 10) == 0
        stream.read()
    thread.join(120)

    assert answers[0][0] == 202


def _entry(name: str, **more: Any) -> str:
    return json.dumps(
        {
            **more,
            "id": name,
            "name": name,
            "mode": "manual",
            "loopInterval": 60,
            "plugins": [],
            "fingerprint": "x",
        }
    )


# Investigations


MODELLED = """
id = "modelled"
[[plugins]]
use = "example"
[llm]
base_url = "{url}/v1"
model = "scripted"
"""


def test_a_conversation_with_the_model_is_followed_as_it_comes(
    deployment: Deployment, tmp_path: Path
) -> None:
    first, go_on = "It is full. " * 50, threading.Event()

    def waits(_: Received) -> Reply:
        assert go_on.wait(120)
        return say("Since noon.")

    with ScriptedModel([say(first), waits]) as model:
        file = tmp_path / "agent.toml"
        file.write_text(MODELLED.format(url=model.url))
        deployment.worker("w", str(file))
        site = Site(deployment)
        assert site.request("GET", "/api/v0/state")[1]["agent"]["model"] == "scripted"
        status, investigation, _ = site.request(
            "POST", "/api/v0/investigations", {"question": "Why?"}
        )
        path = f"/api/v0/investigations/{investigation['id']}"
        with site.stream(f"{path}/events") as stream:
            blocks = list(iter(lambda: block(stream), {}))
        status_said, going, _ = site.request("POST", f"{path}/messages", {"text": "Since when?"})
        with site.stream(f"{path}/events", **{"Last-Event-ID": blocks[-1]["id"]}) as stream:
            assert [block(stream), block(stream)["event"]] == [{"retry": "2000"}, "asked"]
            go_on.set()
            rest = list(iter(lambda: block(stream), {}))

    assert (status, status_said, going["status"]) == (201, 202, "running")
    assert [row["event"] for row in blocks[1:] if row["event"] != "delta"] == [
        *("asked", "said", "ended")
    ]
    assert json.loads(blocks[-1]["data"])["text"] == first
    assert [row["event"] for row in rest if row["event"] != "delta"] == ["said", "ended"]
    assert json.loads(rest[-1]["data"])["text"] == "Since noon."
    _, page, _ = site.request("GET", f"{path}/log")
    # Pieces of a turn are forgotten when the next one begins: what it said is told whole.
    kept_ids = [entry["id"] for entry in page["entries"] if entry["entry"]["kind"] != "delta"]
    shown_ids = [row["id"] for row in [*blocks[1:], *rest] if row["event"] != "delta"]
    assert [entry_id for entry_id in kept_ids if entry_id in shown_ids] == shown_ids


def test_a_client_that_reads_nothing_takes_little_memory(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.store.client.hset("boyd:{*}:agents", "idle", _entry("idle", model="x"))
    site = Site(deployment)
    investigation = site.request("POST", "/api/v0/investigations", {"question": "Why?"})[1]
    entry = Said(step=1, text="x" * 1_000_000).to_json()
    for _ in range(100):
        deployment.store.client.xadd(f"boyd:{{idle}}:log:{investigation['id']}", {"entry": entry})
    before = psutil.Process(site.pid).memory_info().rss
    with site.stream(f"/api/v0/investigations/{investigation['id']}/events") as stream:
        assert block(stream) == {"retry": "2000"}
        # Each part is at most so many entries; nothing is read from Redis while it is not taken.
        wait_until(lambda: _reads(deployment) > 0)
        settled = wait_until(lambda: _is_steady(lambda: _reads(deployment)), 20)
        grown = psutil.Process(site.pid).memory_info().rss - before
        assert site.request("GET", "/api/v0/state")[0] == 200
    assert settled
    assert grown < 200_000_000, grown


def _reads(deployment: Deployment) -> int:
    """Count the reads of stream entries by id."""
    statistics = deployment.store.client.info("commandstats").get("cmdstat_xrange", {})
    return int(statistics.get("calls", 0))


def _is_steady(count: Callable[[], int]) -> bool:
    """Check that a count stays the same for a second."""
    before = count()
    time.sleep(1.0)
    return count() == before


# Redis goes away


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis server of this test's own."""
    with RedisServer(tmp_path, "--appendonly", "yes") as server:
        yield server


def in_time(
    site: Site, seconds: float, method: str, path: str, body: Any = None
) -> tuple[int, Any]:
    """The answer to a request; one of ten in a row comes in time, however busy the machine is."""
    for _ in range(10):
        status, answer, took = site.request(method, path, body)
        if took < seconds:
            return status, answer
    raise AssertionError(f"no answer from {path} within {seconds:g} s")


def test_while_redis_is_away_every_request_is_answered_within_a_second_and_then_as_before(
    database: RedisServer, tmp_path: Path
) -> None:
    with Deployment(database.url, tmp_path) as deployment:
        deployment.store.client.hset("boyd:{*}:agents", "idle", _entry("idle"))
        site = Site(deployment)
        assert site.request("GET", "/api/v0/state")[0] == 200
        for away, back in ((signal.SIGSTOP, signal.SIGCONT), (signal.SIGTERM, None)):
            database.signal(away)
            for path in ("state", "loop/history", "agents", "keys", "state"):
                status, answer = in_time(site, 1.1, "GET", f"/api/v0/{path}")
                assert (status, answer["type"]) == (503, "/problems/unavailable")
            assert in_time(site, 1.1, "POST", "/api/v0/loop/trigger", {})[0] == 503
            assert site.request("GET", "/healthz")[0] == 200
            status, answer = in_time(site, 1.1, "GET", "/readyz")
            assert (status, answer["missing"]) == (503, ["Redis does not answer"])
            if back is None:
                database.start()
            else:
                database.signal(back)
            wait_until(lambda: site.request("GET", "/api/v0/state")[0] == 200)


def test_a_stream_outlives_an_outage_of_redis(database: RedisServer, tmp_path: Path) -> None:
    with Deployment(database.url, tmp_path) as deployment:
        deployment.store.client.hset("boyd:{*}:agents", "idle", _entry("idle"))
        site = Site(deployment)
        with site.stream() as stream:
            block(stream)
            database.signal(signal.SIGTERM)
            assert site.request("GET", "/api/v0/state")[0] == 503
            database.start()
            client = connect(database.url)
            Store(client).agent("idle").loop_control.pause("back")
            client.close()

            assert block(stream)["event"] == "agent.paused"


def test_a_broker_that_hangs_holds_no_request_up(
    database: RedisServer, redis_url: str, tmp_path: Path
) -> None:
    with Deployment(redis_url, tmp_path) as deployment:
        deployment.store.client.hset("boyd:{*}:agents", "idle", _entry("idle"))
        database.signal(signal.SIGSTOP)
        site = Site(deployment, BOYD_BROKER_URL=database.url)
        for _ in range(5):
            status, _ = in_time(site, 1, "POST", "/api/v0/loop/trigger", {"async": True})
            assert status == 202


def test_it_starts_without_redis_and_serves_when_there_is_one(tmp_path: Path) -> None:
    database = RedisServer(tmp_path, "--appendonly", "yes")
    deployment = Deployment(database.url, tmp_path)
    deployment.start("api", "api", "--port", str(port := free_port()), ready=False)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        wait_until(lambda: _get(connection, "/healthz") == 200)
        assert _get(connection, "/readyz") == 503
        database.start()
        wait_until(lambda: "Redis" not in str(_missing(connection)), 10)
        connection.close()
    finally:
        deployment.__exit__()
        database.signal(signal.SIGKILL)


def _get(connection: http.client.HTTPConnection, path: str) -> int:
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
    except OSError:
        connection.close()
        return 0
    return answer.status


def _missing(connection: http.client.HTTPConnection) -> Any:
    connection.request("GET", "/readyz")
    return json.loads(connection.getresponse().read())["missing"]
