"""Faults for real, and whether the doctor, `/readyz` and `/metrics` tell of them."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner

from boyd.health.checks import SILENCE
from boyd.settings.process_settings import Settings
from boyd.store import Store, connect
from boyd.store.fleet import ALIVE
from boyd.store.server.connection import Client
from boyd_api.http.metrics import Metrics
from boyd_api.routes.monitoring_routes import Readiness, readiness
from boyd_cli import boyd
from harness import Deployment, wait_until
from redis_kit import RedisServer

T = TypeVar("T")

pytestmark = pytest.mark.real

TICKING = "agents.traced:ticking"
#: Seconds after which the doctor must have noticed what a dead process left behind.
NOTICED = ALIVE + 24.0


class Server(RedisServer):
    """A Redis of its own, to be mistreated."""

    @cached_property
    def client(self) -> Client:
        """A client of it."""
        return connect(self.url)


@pytest.fixture
def server(tmp_path: Path, redis_server: str) -> Iterator[Server]:
    """A Redis of this test's own; `redis_server` is asked for to skip where there is none."""
    with Server(tmp_path, "--appendonly", "yes") as server:
        yield server


def doctor(url: str, *arguments: str, **environment: str) -> tuple[int, list[str]]:
    """The exit status of the doctor and its findings but those that are ok, as one line each."""
    variables = {"BOYD_REDIS_URL": url, **environment}
    result = CliRunner().invoke(boyd, ["doctor", "-o", "json", *arguments], env=variables)
    assert result.exit_code in (0, 1), (result.output, result.exception)
    findings = json.loads(result.stdout)["findings"]
    bad = [each for each in findings if each["level"] != "ok"]
    assert all(each["whatToDo"] for each in bad)
    return result.exit_code, [f"{f['level']} {f['subject']}: {f['what']}" for f in bad]


def reports(report: tuple[int, list[str]], text: str) -> bool:
    """Check that a finding contains *text*."""
    return any(text in line for line in report[1])


def api_store(url: str) -> Store:
    """A store as the API opens it to answer within a second."""
    return Store(connect(url, timeout=0.4), "api")


def ready(store: Store) -> Readiness:
    """Query `/readyz`."""
    return readiness(store, Settings())


def scrape(store: Store, brokers: Sequence[Any] = ()) -> bytes:
    """Scrape `/metrics`."""
    return Metrics(lambda: store, brokers).expose()[0]


def in_time(ask: Callable[[], T]) -> T:
    """An answer; one of ten in a row comes within a second, however busy the machine is."""
    for _ in range(10):
        began = time.monotonic()
        answer = ask()
        if time.monotonic() - began < 1.0:
            return answer
    raise AssertionError("no answer within a second")


# Redis


def test_a_stopped_redis_is_reported_within_a_second(server: Server) -> None:
    fresh, used = api_store(server.url), api_store(server.url)
    wait_until(lambda: ready(used).missing == ["no worker is alive"])
    server.signal(signal.SIGSTOP)
    for store in (fresh, used):
        assert in_time(partial(ready, store)).missing == ["Redis does not answer"]
    assert b"boyd_up 0.0" in in_time(partial(scrape, used))
    status, report = doctor(server.url)
    assert (status, len(report)) == (1, 1)
    assert "Redis does not answer" in report[0]
    server.signal(signal.SIGCONT)
    wait_until(lambda: ready(used).missing == ["no worker is alive"])
    assert b"boyd_up 1.0" in scrape(used)


def test_a_terminated_redis_is_reported(server: Server) -> None:
    store = api_store(server.url)
    ready(store)
    server.signal(signal.SIGTERM)

    assert ready(store).missing == ["Redis does not answer"]
    assert b"boyd_up 0.0" in scrape(store)
    status, report = doctor(server.url)
    assert (status, len(report)) == (1, 1)
    assert "Redis does not answer" in report[0]


def test_an_eviction_policy_that_may_drop_state_is_reported(server: Server) -> None:
    server.client.config_set("maxmemory-policy", "allkeys-lru")
    assert reports(doctor(server.url), "warning eviction: allkeys-lru, no memory limit yet")

    server.client.config_set("maxmemory", 100_000_000)
    assert reports(doctor(server.url), "error eviction: allkeys-lru")
    assert b"boyd_redis_evicts 1.0" in scrape(api_store(server.url))


def test_persistence_that_may_lose_state_is_reported(server: Server) -> None:
    assert not reports(doctor(server.url), "persistence")

    server.client.config_set("appendonly", "no")
    server.client.config_set("save", "900 1 60 1000")
    assert reports(
        doctor(server.url), "warning persistence: snapshots only: a crash may lose up to"
    )
    assert reports(doctor(server.url), "the last 15 min")

    server.client.config_set("save", "")
    assert reports(doctor(server.url), "warning persistence: nothing is written to disk")
    assert b'boyd_redis_persistence{kind="rdb"} 0.0' in scrape(api_store(server.url))


def test_a_snapshot_that_failed_is_an_error(server: Server, tmp_path: Path) -> None:
    snapshot = tmp_path / "dump.rdb"
    server.client.set("some", "thing")
    snapshot.mkdir()  # nothing can be renamed to it
    (snapshot / "in it").touch()
    server.client.bgsave()
    wait_until(lambda: server.client.info()["rdb_last_bgsave_status"] == "err", 10)

    status, report = doctor(server.url)
    assert status == 1
    assert "error snapshots: the last snapshot failed" in report
    assert ready(api_store(server.url)).missing == [SILENCE]


def test_a_terminated_broker_is_reported(server: Server, tmp_path: Path) -> None:
    with Server(tmp_path) as broker:
        before = doctor(server.url, BOYD_BROKER_URL=broker.url)
    after = doctor(server.url, BOYD_BROKER_URL=broker.url)

    assert not reports(before, "broker")
    assert after[0] == 1
    assert reports(after, "error broker: Redis does not answer")
    assert b"boyd_broker_up 0.0" in scrape(api_store(server.url), [connect(broker.url)])


# Processes


def test_a_deployment_with_all_it_needs_is_ready_until_beat_is_killed(
    deployment: Deployment,
) -> None:
    deployment.worker("w", TICKING)
    store = api_store(deployment.redis_url)
    assert ready(store).missing == ["no beat is alive for agent ticking"]
    deployment.beat("b", TICKING)
    deployment.ended("ticking", 2)
    assert ready(store).ready
    assert doctor(deployment.redis_url)[0] == 0

    deployment.kill("b")
    wait_until(lambda: not ready(store).ready, NOTICED)
    status, report = doctor(deployment.redis_url)
    assert ready(store).missing == ["no beat is alive for agent ticking"]
    assert status == 1
    assert "error agent ticking: no live beat runs for it" in report
    assert any("no heartbeat for" in line for line in report)
    assert b'boyd_workers{role="beat"} 0.0' in scrape(store)


def test_a_queue_with_work_and_no_worker_is_reported(deployment: Deployment) -> None:
    deployment.worker("w", "agents.traced:traced", "-Q", "observe,act")
    url = deployment.redis_url
    assert reports(doctor(url), "error agent traced: no live worker consumes queue 'loop'")

    deployment.launcher("traced").trigger("test")
    status, _ = wait_until(lambda: _waits(url), 20)
    assert status == 1
    assert b'boyd_queue_messages{agent="traced",queue="loop"} 1.0' in scrape(api_store(url))

    deployment.worker("l", "agents.traced:traced", "-Q", "loop")
    deployment.ended("traced", 1)
    assert doctor(url)[0] == 0


def _waits(url: str) -> tuple[int, list[str]] | None:
    report = doctor(url)
    return report if reports(report, "'loop'; work has been waiting for") else None


@pytest.mark.slow
@pytest.mark.long
def test_an_iteration_whose_workers_are_all_dead_is_reported(deployment: Deployment) -> None:
    (deployment.folder / "effects.hold.decide").touch()
    deployment.worker("w", "agents.traced:traced")
    deployment.launcher("traced").trigger("test")
    wait_until(lambda: any(line.startswith("decide") for line in deployment.effects()), 20)
    deployment.kill("w")
    url = deployment.redis_url
    wait_until(lambda: reports(doctor(url), "has stalled"), NOTICED)

    assert reports(doctor(url), "error agent traced: iteration 1 in phase decide has stalled")
    assert reports(doctor(url), "error workers: none is alive")


def test_workers_with_different_agent_files_are_reported(
    deployment: Deployment, tmp_path: Path
) -> None:
    for name, threshold in (("one", 80), ("two", 90)):
        text = f'id = "a"\nloop_interval = {threshold}.0\n'
        (tmp_path / f"{name}.toml").write_text(text)
        deployment.worker(name, str(tmp_path / f"{name}.toml"))

    report = doctor(deployment.redis_url)
    assert reports(report, "warning agent a: its processes run 2 different agent files")


def test_an_unreadable_calendar_is_reported(deployment: Deployment, tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('id = "a"\n[[windows]]\nfreezes = "freezes.ics"\n')
    deployment.worker("w", str(file))
    url = deployment.redis_url
    problem = f"agent a: change freezes: {tmp_path}/freezes.ics: No such file or directory"
    wait_until(lambda: reports(doctor(url), problem), NOTICED)

    calendar = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//test//EN\r\nEND:VCALENDAR\r\n"
    (tmp_path / "freezes.ics").write_text(calendar, newline="")
    wait_until(lambda: not reports(doctor(url), problem), NOTICED)


def test_the_doctor_asks_for_nothing_that_grows(store: Store, redis_url: str) -> None:
    """No command that takes longer with more keys."""
    before: dict[str, Any] = store.client.info("commandstats")
    doctor(redis_url)
    scrape(store)
    after: dict[str, Any] = store.client.info("commandstats")
    used = {name for name in after if after[name] != before.get(name)}

    assert not used & {"cmdstat_keys", "cmdstat_scan", "cmdstat_smembers", "cmdstat_lrange"}


@pytest.mark.parametrize(
    ("login", "reason"),
    [
        ("", "it needs a password"),
        (":wrong@", "invalid username-password pair or user is disabled"),
        ("nobody:wrong@", "invalid username-password pair or user is disabled"),
    ],
)
def test_a_refused_login_is_no_server_that_does_not_answer(
    server: Server, login: str, reason: str
) -> None:
    server.client.config_set("requirepass", "right")
    _, [finding] = doctor(server.url.replace("//", f"//{login}"))

    assert finding.endswith(f"Redis refuses the login: {reason}")
