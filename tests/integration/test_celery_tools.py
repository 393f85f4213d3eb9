"""Celery's own tools see workers and tasks, once they are switched on."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import requests
from celery import Celery
from packaging.requirements import Requirement

from celery_exporter_kit import PACKAGES, RUN, celery_exporter
from guarded_redis import REDIS, Guarded
from guide_kit import Guide
from harness import Deployment, free_port, wait_until
from signals import signal_group

pytestmark = pytest.mark.real

GUIDE = Guide("operations.md")
APP = "celery -A boyd_worker.app"
#: What the page types after that: to ask, to follow events, and to start Flower.
INSPECT, EVENTS, FLOWER = [
    line.removeprefix(APP).split()
    for line in GUIDE.block("Celery's own tools", "flower").splitlines()
    if line.startswith(APP)
]


@pytest.fixture
def server(tmp_path: Path, redis_server: str) -> Iterator[Guarded]:
    """A Redis whose users may do what the tools need, and no more."""
    redis = Guarded(tmp_path)
    subprocess.run([REDIS / "allow-celery-tools", redis.secrets], check=True, capture_output=True)
    redis.admin.acl_load()
    yield redis
    redis.end()


@pytest.fixture
def running(server: Guarded, tmp_path: Path) -> Iterator[Deployment]:
    """A worker whose tasks and life the tools may see; the user of `surroundings` is theirs."""
    with Deployment(server.urls["admin"], tmp_path) as deployment:
        deployment.environment["BOYD_CELERY__EVENTS"] = "true"
        deployment.environment["BOYD_REDIS_URL"] = server.urls["worker"]
        # Where tasks are processes, each step is a task of its own.
        deployment.worker(
            "worker", "agents.traced:traced", "--pool", "prefork", "--concurrency", "2"
        )
        deployment.environment["BOYD_REDIS_URL"] = (server.secrets / "redis-url-celery").read_text()
        yield deployment


def run(running: Deployment, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Celery to its end."""
    command = [sys.executable, "-m", *APP.split(), *arguments]
    options: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
    return subprocess.run(command, env=running.surroundings(), **options, timeout=120)


def replies(running: Deployment, *arguments: str) -> Any:
    """The answer of the worker to `celery inspect`, once it listens."""
    [worker] = running.store.fleet.workers()
    options = ("--json", "--timeout", "10", "--destination", f"boyd@{worker.name}")

    def ask() -> Any:
        printed = run(running, *arguments, *options)
        return json.loads(printed.stdout) if printed.returncode == 0 else None

    [reply] = wait_until(ask, 30).values()
    return reply


def start(running: Deployment, name: str, *arguments: str) -> None:
    """Start a command of Celery that goes on."""
    with (running.folder / f"{name}.log").open("ab") as log:
        running.processes[name] = subprocess.Popen(
            [sys.executable, "-m", *APP.split(), *arguments],
            env=running.surroundings(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def tasks(states: Sequence[dict[str, Any]]) -> set[str]:
    """The names of tasks that succeeded."""
    return {state["name"] for state in states if state["state"] == "SUCCESS"}


@pytest.mark.long
def test_inspect_events_and_flower_show_workers_and_tasks(
    server: Guarded, running: Deployment
) -> None:
    port = free_port()
    running.environment["FLOWER_UNAUTHENTICATED_API"] = "true"
    start(running, "events", *EVENTS)
    start(running, "flower", *FLOWER, f"--port={port}")
    flower = requests.Session()
    flower.trust_env = False

    def ask(path: str) -> Any:
        try:
            return flower.get(f"http://127.0.0.1:{port}/{path}", timeout=60).json()
        except requests.ConnectionError:
            return {}

    pong = replies(running, *INSPECT)
    wait_until(lambda: ask("api/workers?refresh=1"), 60)
    wait_until(lambda: "heartbeat" in running.log("events"), 60)
    (running.folder / "effects.hold.act").touch()
    running.launcher("traced").trigger(by="the test")
    [active] = wait_until(lambda: replies(running, "inspect", "active"), 60)
    (running.folder / "effects.hold.act").unlink()
    running.ended("traced", 1)
    everything = {f"boyd.{phase}" for phase in ("start", "observe", "orient", "decide", "act")}
    wait_until(lambda: everything <= tasks(list(ask("api/tasks").values())), 60)

    assert pong == {"ok": "pong"}
    assert active["name"] == "boyd.act"
    assert active["args"] == ["traced", 1, 1]
    assert replies(running, "inspect", "stats")["total"]["boyd.act"] == 1
    assert [name for name in ask("api/workers") if name.startswith("boyd@")]
    assert all(f"task succeeded: {name}" in running.log("events") for name in everything)
    for name in ("events", "flower"):
        signal_group(running.processes[name].pid, 2)
        running.processes[name].wait(60)
    assert running.stop("worker") == 0
    assert server.refusals() == []


def success_metric(task: str, queue: str, host: str) -> str:
    """The metric of celery-exporter for the tasks that succeeded."""
    labels = f'hostname="{host}",name="boyd.{task}",queue_name="boyd.{queue}.traced"'
    return f"celery_task_succeeded_total{{{labels}}}"


@pytest.mark.long
def test_celery_exporter_counts_workers_tasks_and_queues(
    server: Guarded, running: Deployment
) -> None:
    [worker] = running.store.fleet.workers()
    session = requests.Session()
    session.trust_env = False
    broker = running.environment["BOYD_REDIS_URL"]
    with celery_exporter(broker, free_port(), running.folder / "exporter.log") as url:

        def metrics() -> dict[str, float]:
            try:
                lines = session.get(url, timeout=60).text.splitlines()
            except requests.ConnectionError:
                return {}
            pairs = (line.rpartition(" ") for line in lines if line.startswith("celery_"))
            return {name: float(value) for name, _, value in pairs}

        up = f'celery_worker_up{{hostname="{worker.name}"}}'
        wait_until(lambda: metrics().get(up) == 1, 60)
        running.launcher("traced").trigger(by="the test")
        running.ended("traced", 1)
        wait_until(lambda: metrics().get(success_metric("complete", "loop", worker.name)) == 1, 60)
        counts = metrics()

    assert counts[success_metric("observe", "observe", worker.name)] == 3
    assert counts[success_metric("act", "act", worker.name)] == 1
    assert counts['celery_queue_length{queue_name="boyd.act.traced"}'] == 0
    assert counts['celery_active_worker_count{queue_name="boyd.act.traced"}'] == 1
    assert server.refusals() == []


def test_celery_exporter_is_the_one_that_the_page_installs_and_runs() -> None:
    _, install, started = GUIDE.block("Celery's own tools", "exporter").splitlines()
    installed = {
        requirement.name: requirement.specifier for requirement in map(Requirement, PACKAGES)
    }

    for wish in map(Requirement, shlex.split(install)[2:]):
        [pin] = installed[wish.name]
        assert wish.specifier.contains(pin.version), wish
    assert shlex.split(started)[1:3] == ["-c", RUN]


def test_workers_obey_no_command_that_changes_anything(running: Deployment) -> None:
    [worker] = running.store.fleet.workers()
    app = Celery(broker=running.environment["BOYD_REDIS_URL"], set_as_current=False)

    def answer(command: str, **arguments: Any) -> Any:
        to = {"destination": [f"boyd@{worker.name}"], "timeout": 10, "reply": True}
        [reply] = wait_until(lambda: app.control.broadcast(command, arguments, **to), 60)
        return reply[f"boyd@{worker.name}"]

    assert answer("ping") == {"ok": "pong"}
    assert "error" in answer("shutdown")
    assert "error" in answer("hello", from_node="x", revoked=["a task"])
    assert "error" in answer("pool_shrink", n=8)
    assert answer("revoked") == []
    assert answer("ping") == {"ok": "pong"}
    app.close()


def test_a_worker_works_without_events_if_redis_does_not_permit_them(
    tmp_path: Path, redis_server: str
) -> None:
    server = Guarded(tmp_path)
    with Deployment(server.urls["admin"], tmp_path) as running:
        running.environment["BOYD_CELERY__EVENTS"] = "true"
        running.environment["BOYD_REDIS_URL"] = server.urls["worker"]
        running.worker("worker", "agents.traced:traced")
        running.launcher("traced").trigger(by="the test")

        assert running.ended("traced", 1).success
        assert "celery.events has no effect" in running.log("worker")
    server.end()
