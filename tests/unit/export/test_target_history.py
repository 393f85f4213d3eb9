"""The history of a target, from Redis and from archives in every encoding."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import fakeredis
import pytest
import redis

from api_kit import make_desk
from archive_kit import Archive, PostgreSQL
from boyd import Agent
from boyd.export.archive.access import ArchiveAccess
from boyd.export.archive.period_iterations import READ, TargetQuery
from boyd.export.archive.target_history import read_target
from boyd.models import (
    APPROVAL_REQUIRED,
    ActionResult,
    Autonomy,
    Observation,
    SituationAssessment,
    utc_now,
)
from boyd.models.incident import TargetHistory
from boyd.plugin import Component, Observer, Orienter, Strategy
from boyd.testing import Lab
from kit import Recorder, assessed, choice, chooses, plugin, seen, sees
from past_kit import (
    alert,
    approval,
    archive_past,
    at,
    execution,
    iteration,
    latency,
    problem,
)

NAMES = ["web-3", "https://shop.example/a b?c=1&d='", "wéb-☃", "<script>x</script>", "a%_\\b"]
NOWHERE = ArchiveAccess(None)


@pytest.fixture
def past(archive_url: str) -> Iterator[Archive]:
    lab, _ = make_desk(fakeredis.FakeServer())
    archive = Archive(archive_url, lab.whole, agent_id="desk")
    yield archive
    archive.close()


def read(archive: Archive, target: str = "web-3", *agents: str, hours: float = 24) -> TargetHistory:
    query = TargetQuery(target, at(0), at(60 * hours))
    stores = [archive.store.agent(agent) for agent in agents or ("desk",)]
    return read_target(query, stores, archive.access())


def test_a_day_has_its_incidents_with_all_that_was_done(past: Archive) -> None:
    down = [iteration(n, n, problem(), observations=[latency(9.0)]) for n in range(60, 70)]
    well = [iteration(n, n, observations=[latency(0.1)]) for n in [*range(60), *range(70, 90)]]
    done = [
        execution("approval:a1", 66, verdict="effective", verified=10, by="eve"),
        execution("call:9", 20, action="deploy"),
        execution("call:8", 66, target="web-4"),
    ]
    archive_past(past, down + well, done, [approval("a1", 63, 3)])
    history = read(past)
    (incident,) = history.incidents

    assert [event.kind for event in incident.events] == ["anomaly", "approval", "action", "verdict"]
    assert incident.outcome == "effective: k8s:restart by eve"
    assert (incident.since, incident.until) == (at(60), at(76.5))
    assert [event.title for event in history.events] == ["deploy"]
    assert [series.name for series in history.series] == ["http:probe latency"]
    assert history.agents == ["desk"]
    assert history.notes == []


@pytest.mark.parametrize("name", NAMES)
def test_a_target_may_have_any_name(past: Archive, name: str) -> None:
    archive_past(past, [iteration(1, 1, problem(name)), iteration(2, 2, problem("other"))])

    assert [it.since for it in read(past, name).incidents] == [at(1)]
    assert read(past, name[:3]).incidents == []


@pytest.mark.long
def test_a_database_without_an_encoding_finds_every_name(postgresql_server: PostgreSQL) -> None:
    lab, _ = make_desk(fakeredis.FakeServer())
    archive = Archive(postgresql_server.create("SQL_ASCII"), lab.whole, agent_id="desk")
    archive_past(archive, [iteration(n, n, problem(name)) for n, name in enumerate(NAMES, 1)])
    starts = [read(archive, name).incidents[0].since for name in NAMES]
    archive.close()

    assert starts == [at(n) for n in range(1, len(NAMES) + 1)]


def test_an_action_without_a_target_belongs_to_the_problem_that_it_was_for(past: Archive) -> None:
    approval_request = ActionResult(
        action="k8s:restart", success=False, duration=0, error=APPROVAL_REQUIRED, waits_for="a1"
    )
    ran = ActionResult(action="scratch:clean", success=True, duration=5)
    iterations = [
        iteration(1, 1, problem()).patched({"action_results": [approval_request]}),
        iteration(2, 2, problem()).patched({"action_results": [ran]}),
        iteration(3, 3, problem("web-4")).patched({"action_results": [ran]}),
        iteration(4, 4),
    ]
    done = [
        execution("approval:a1", 2.5, verdict="effective", target="", by="eve"),
        execution("loop:2", 2, target="", action="scratch:clean", verdict="no effect"),
        execution("loop:3", 3, target="", action="scratch:clean"),
    ]
    archive_past(past, iterations, done, [approval("a1", 1, 1, target="")])
    (incident,) = read(past).incidents

    assert incident.outcome == "no effect: scratch:clean; effective: k8s:restart by eve"
    assert [event.ref for event in incident.of_kind("approval")] == ["a1"]


def test_the_outcome_names_an_undone_action_without_a_target(past: Archive) -> None:
    ran = ActionResult(action="k8s:scale", success=True, duration=5)
    scale = execution("loop:1", 2, verdict="worse", action="k8s:scale", target="")
    undo = execution("rollback:loop:1", 4, action="k8s:scale", target="", verdict="effective")
    archive_past(
        past, [iteration(1, 1, problem()).patched({"action_results": [ran]})], [scale, undo]
    )
    (incident,) = read(past).incidents

    assert incident.outcome == "made it worse and was undone: k8s:scale"


def test_an_open_problem_waits_for_the_approval_of_an_action_without_a_target() -> None:
    act = Recorder().action(autonomy=Autonomy(mode="approval-required"))
    lab = recent_lab(chooses(choice()), act)
    lab.run()
    lab.run()

    assert read_recent(lab).incidents[0].outcome == "waits for approval: p:do"


def test_an_alert_brings_its_links_and_is_found_by_its_instance(past: Archive) -> None:
    links: dict[str, Any] = {
        "annotations": {"runbook_url": "https://wiki/r", "evil": "javascript:x"}
    }
    archive_past(
        past,
        [
            iteration(1, 1, observations=[alert(**links)]),
            iteration(2, 2, observations=[alert(**links)]),
            iteration(3, 4, observations=[alert(status="resolved")]),
        ],
    )
    (incident,) = read(past).incidents
    (event,) = incident.events

    assert [(link.title, link.url) for link in event.links] == [("runbook", "https://wiki/r")]
    assert (event.kind, event.state, event.until) == ("alert", "resolved", at(4 + 1 / 60))


def test_of_a_long_incident_an_even_choice_is_read(past: Archive) -> None:
    archive_past(past, [iteration(n, n / 6, problem()) for n in range(1, 3 * READ)])
    history = read(past)
    (incident,) = history.incidents

    assert (history.read, history.iterations) == (READ, 3 * READ - 1)
    assert (incident.since, len(incident.events)) == (at(1 / 6), 1)


def test_agents_on_one_target_make_one_history(past: Archive) -> None:
    archive_past(past, [iteration(1, 1, problem())])
    other = iteration(7, 3, problem(severity="critical"), agent_id="other")
    archive_past(past, [other], agent_id="other")
    history = read(past, "web-3", "desk", "other", "stranger")
    (incident,) = history.incidents

    assert history.agents == ["desk", "other"]
    assert [event.agent_id for event in incident.events] == ["desk", "other"]


def test_a_failed_iteration_does_not_show_that_all_is_well(past: Archive) -> None:
    archive_past(past, [iteration(1, 1, problem()), iteration(2, 2, fails=True)])
    assert read(past).incidents[0].open

    archive_past(past, [iteration(3, 3)])
    assert not read(past).incidents[0].open


def test_an_iteration_whose_plugin_could_not_look_does_not_show_that_all_is_well(
    past: Archive,
) -> None:
    archive_past(past, [iteration(1, 1, problem()), iteration(2, 2, blind=["http"])])
    assert read(past).incidents[0].open

    archive_past(past, [iteration(3, 3, blind=["files"])])
    assert not read(past).incidents[0].open


def test_while_an_observer_fails_what_its_plugin_saw_is_open() -> None:
    values = [99]

    def sense(observations: list[Observation]) -> SituationAssessment:
        high = [it for it in observations if it.data["value"] == 99]
        return assessed("looked", source="p:sense", anomalies=[problem()] if high else None)

    look = Observer(name="cpu", observe=lambda: [seen("cpu", data={"value": values[-1]})])
    parts = [look, Orienter(name="sense", orient=sense)]
    client = fakeredis.FakeRedis(server=fakeredis.FakeServer(), decode_responses=True)
    lab = Lab(Agent("test", plugins=[plugin(*parts)]), client=client)

    lab.run()
    values.clear()
    assert lab.run().blind == ["p"]
    assert read_recent(lab).incidents[0].open

    values.append(1)
    assert lab.run().blind == []
    assert not read_recent(lab).incidents[0].open


def test_an_undone_action_is_one_sentence(past: Archive) -> None:
    scale = execution("loop:1", 2, verdict="worse", undone=True, action="k8s:scale")
    undo = execution("rollback:loop:1", 4, action="k8s:scale")
    archive_past(past, [iteration(1, 1, problem())], [scale, undo])
    (incident,) = read(past).incidents

    assert incident.outcome == "made it worse and was undone: k8s:scale"
    assert [event.state for event in incident.of_kind("verdict")] == ["worse, undone"]


def recent_lab(*components: Component) -> Lab:
    """An agent of which Redis alone knows, with anomalies on web-3."""
    assessment = assessed("looked", source="p:sense", anomalies=[problem()])
    sense = Orienter(name="sense", orient=lambda: assessment)
    parts = [sees("cpu", seen("cpu")), sense, *components]
    client = fakeredis.FakeRedis(server=fakeredis.FakeServer(), decode_responses=True)
    return Lab(Agent("test", plugins=[plugin(*parts)]), client=client)


def read_recent(lab: Lab, access: ArchiveAccess = NOWHERE) -> TargetHistory:
    now = utc_now()
    query = TargetQuery("web-3", now - timedelta(hours=1), now + timedelta(hours=1))
    return read_target(query, [lab.store], access)


def test_without_an_archive_redis_is_read() -> None:
    lab = recent_lab()
    for _ in range(3):
        lab.run()
    history = read_recent(lab)

    assert (history.iterations, len(history.incidents), history.incidents[0].open) == (3, 1, True)
    assert history.incidents[0].events[0].detail == "endpoint on web-3"


def test_an_iteration_that_still_runs_shows_its_anomaly() -> None:
    seen_so_far: list[TargetHistory] = []
    look = Strategy(name="look", decide=lambda: seen_so_far.append(read_recent(lab)))
    lab: Lab = recent_lab(look)
    lab.run()
    lab.run()

    assert [it.iterations for it in seen_so_far] == [1, 2]
    assert [it.incidents[0].open for it in seen_so_far] == [True, True]
    (anomaly,) = seen_so_far[-1].incidents[0].events
    assert (anomaly.title, anomaly.severity) == ("it answers 503", "high")
    assert read_recent(lab).iterations == 2


def test_an_archive_that_is_down_is_noted_and_redis_is_read() -> None:
    lab = recent_lab()
    lab.run()
    history = read_recent(lab, ArchiveAccess("sqlite:////nowhere/at/all.db"))

    assert len(history.incidents) == 1
    assert "archive does not answer" in history.notes[0]


def test_commands_to_redis_do_not_grow_with_the_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = recent_lab()
    lab.run()
    read_recent(lab)  # loads the scripts
    counts = []
    for rounds in (2, 30):
        for _ in range(rounds):
            lab.run()
        commands: list[str] = []
        with monkeypatch.context() as patch:
            record_commands(patch, commands)
            read_recent(lab)
        counts.append(commands)

    assert counts[0] == counts[1] != []


def record_commands(patch: pytest.MonkeyPatch, commands: list[str]) -> None:
    """Record the commands of this thread; those of other tests may still wait for events."""
    here = threading.get_ident()

    def record(name: str, kind: Any) -> None:
        original = getattr(kind, name)

        def run(self: Any, *parts: Any, **options: Any) -> Any:
            if threading.get_ident() == here:
                commands.append(parts[0])
            return original(self, *parts, **options)

        patch.setattr(kind, name, run)

    record("execute_command", redis.Redis)
    record("pipeline_execute_command", redis.client.Pipeline)
