"""The fleet and the agents: what is missing comes first, and the dead are not shown alive."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from api_kit import Site
from boyd.health.reader import read_health
from boyd.health.server_health import ServerHealth
from boyd.health.snapshot import HealthSnapshot
from boyd.models import utc_now
from boyd.models.loop import ArchiveStatus, TraceStatus
from boyd.store.ended_work import announce_archive, announce_traces
from boyd.store.fleet import WorkerInfo
from boyd.store.keys import WORKERS
from console_kit import Browser

HOSTILE = "<img src=x onerror=alert(1)>\u202egnp.exe"
EVERYTHING = ["loop", "observe", "act", "printer"]


@pytest.fixture(autouse=True)
def nothing_runs(desk: Site) -> None:
    """The lab's own workers have left."""
    for worker in desk.store.fleet.workers():
        desk.store.fleet.leave(worker.name)


def start(desk: Site, name: str = "w1", **fields: Any) -> None:
    """A process of the agent `desk` sends a heartbeat."""
    defaults: dict[str, Any] = {
        "role": "worker",
        "host": "here",
        "pid": 7,
        "queues": EVERYTHING,
        "agents": ["desk"],
        "version": "1.0",
        "started_at": utc_now(),
    }
    desk.store.fleet.beat(WorkerInfo(name=name, **{**defaults, **fields}))


def kill(desk: Site, name: str, seconds: float = 120) -> None:
    """The process has sent nothing for a while."""
    desk.store.client.zadd(WORKERS, {name: (time.time() - seconds) * 1000})


def test_without_a_process_the_page_says_that_nothing_runs(alice: Browser) -> None:
    response = alice.get("/console/fleet")

    assert "desk : no process runs it, so it does nothing. boyd worker" in response.text
    assert "Nothing runs: no process has sent a heartbeat." in response.text


def test_nothing_is_called_dead_while_redis_may_refuse_heartbeats(
    alice: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*arguments: Any) -> HealthSnapshot:
        full = ServerHealth.of({"aof_last_write_status": "err"}, None)
        return replace(read_health(*arguments), server=full)

    monkeypatch.setattr("boyd_api.console.fleet_page.read_health", read)
    response = alice.get("/console/fleet")

    assert "No heartbeat comes, and Redis may refuse to record any." in response.text
    assert not any(text in response.text for text in ("process runs it", "Nothing runs"))


def test_a_process_is_listed_with_its_queues(alice: Browser, desk: Site) -> None:
    start(desk)
    response = alice.get("/console/fleet")

    assert response.title.startswith("Fleet: 1 process ")
    assert "w1 worker on here, pid 7" in response.text
    assert "Missing" not in response.text
    assert "unserved" not in response.text


def test_unserved_queues_come_first_with_the_command(alice: Browser, desk: Site) -> None:
    start(desk, queues=["loop", "observe", "act"])
    response = alice.get("/console/fleet")

    assert "desk queue printer : no live worker consumes it, needed by" in response.text
    assert "boyd worker -Q printer" in response.text
    assert response.text.index("printer unserved") < response.text.index("loop")
    assert response.title.startswith("Fleet: 1 gap")


def test_a_worker_without_a_heartbeat_is_not_alive(alice: Browser, desk: Site) -> None:
    start(desk, "w2", host="there")
    kill(desk, "w2")
    start(desk)
    table, lost = alice.get("/console/fleet").text.split("Without a heartbeat")

    assert "w1" in table
    assert "w2" not in table
    assert "lost worker w2 on there: its last heartbeat came" in lost
    assert "2 min ago" in lost or "1 min 59 s ago" in lost


def test_the_last_worker_that_dies_leaves_a_gap(alice: Browser, desk: Site) -> None:
    start(desk)
    kill(desk, "w1")

    assert "desk : no process runs it" in alice.get("/console/fleet").text


def test_a_key_for_one_agent_shows_only_its_processes(desk: Site) -> None:
    start(desk, "both", agents=["desk", "other"])
    start(desk, "hidden", agents=["other"])
    limited = Browser(desk, desk.key("read", agents=["desk"]))
    text = limited.get("/console/fleet").text

    assert "both" in text
    assert "hidden" not in text
    assert "other" not in text


def test_the_state_of_the_archive_is_for_admins(alice: Browser, guest: Browser, desk: Site) -> None:
    down = ArchiveStatus(name="a", at=utc_now(), down_since=utc_now(), error="db-host refuses")
    announce_archive(desk.store.client, down)

    assert "Archive: down for" in alice.get("/console/fleet").text
    assert "db-host refuses" in alice.get("/console/fleet").text
    assert "db-host" not in guest.get("/console/fleet").text


def test_the_state_of_the_traces_is_for_admins(alice: Browser, guest: Browser, desk: Site) -> None:
    assert "Traces:" not in alice.get("/console/fleet").text
    down = TraceStatus(name="t", at=utc_now(), down_since=utc_now(), error="collector refuses")
    announce_traces(desk.store.client, down)

    assert "Traces: down for" in alice.get("/console/fleet").text
    assert "collector refuses" in alice.get("/console/fleet").text
    assert "Traces:" not in guest.get("/console/fleet").text


def test_a_hostile_problem_is_shown_as_text(alice: Browser, desk: Site) -> None:
    start(desk, problem=HOSTILE)
    response = alice.get("/console/fleet")

    assert HOSTILE in response.text
    assert "<img src=x" not in response.source
    assert "ill" in response.text


def test_agents_are_listed_with_what_matters_most(alice: Browser, desk: Site) -> None:
    dead = alice.get("/console/agents")
    assert "Not watching desk no worker consumes the queue loop: boyd worker -Q loop" in dead.text
    start(desk)
    assert alice.get("/console/agents").title.startswith("Agents: 1 quiet")
    desk.lab.store.loop_control.pause("maintenance")
    assert "Paused desk maintenance" in alice.get("/console/agents").text
    desk.store.freezes.freeze("stop", "desk")
    assert "Paused desk maintenance frozen" in alice.get("/console/agents").text


def test_an_agent_without_a_beat_is_listed_as_one_that_does_not_watch(
    alice: Browser, desk: Site
) -> None:
    entry = desk.lab.engine.entry().patched({"mode": "continuous", "loop_interval": 5.0})
    desk.store.fleet.register(entry)
    desk.services.forget_agents()
    start(desk)
    assert "no beat starts its iterations" in alice.get("/console/agents").text
    [listed] = desk.get("/agents").json["agents"]
    assert listed["obstacle"] == "no beat starts its iterations"
    assert "nextStart" not in listed

    start(desk, "b1", role="beat", queues=[])
    desk.services.forget_agents()
    assert "Quiet desk" in alice.get("/console/agents").text


def test_a_retired_agent_is_listed_as_such_without_a_link(alice: Browser, desk: Site) -> None:
    desk.post("/agents/desk/retire")
    desk.services.forget_agents()
    response = alice.get("/console/agents")

    assert "Retired desk" in response.text
    assert 'href="/console/agents/desk"' not in response.source
    assert "desk" not in alice.get("/console/fleet").text.split("Fleet", 1)[1]
