"""The answers of the core routes, over an agent in a lab."""

from __future__ import annotations

import re
import threading
from datetime import datetime
from typing import Any

import pytest

from api_kit import MAKER, Site, make_lab
from boyd.models import utc_now
from boyd.store import AgentEntry
from boyd.store.events import PAGE
from harness import wait_until
from virtual_time import VirtualTime, imaginary_server


def register(site: Site, agent_id: str) -> None:
    """Announce another agent."""
    [agent_entry] = site.store.fleet.agents().values()
    entry = AgentEntry(**{**dict(agent_entry), "id": agent_id, "name": agent_id})
    site.store.fleet.register(entry)


# Health


def test_health_needs_nothing(site: Site) -> None:
    answer = site.client.get("/api/v0/health").json

    assert answer["status"] == "ok"
    assert datetime.fromisoformat(answer["timestamp"]).tzinfo is not None
    assert site.client.get("/healthz").json["status"] == "ok"


@imaginary_server()
def test_health_tells_the_time_by_redis(monkeypatch: pytest.MonkeyPatch, server: Any) -> None:
    redis, site = VirtualTime(monkeypatch), Site(make_lab(server), server)
    timestamp = datetime.fromisoformat(site.client.get("/api/v0/health").json["timestamp"])
    assert timestamp.timestamp() == pytest.approx(redis.now / 1000, abs=60)
    site.services.stop()


def test_readiness_says_what_is_missing(site: Site, server: Any) -> None:
    assert site.client.get("/readyz").json == {"status": "ready", "missing": []}
    for worker in site.store.fleet.workers():
        site.store.fleet.leave(worker.name)
    answer = site.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json["status"] == "not-ready"
    assert "no worker is alive" in answer.json["missing"]
    server.connected = False
    assert site.client.get("/readyz").json["missing"] == ["Redis does not answer"]
    assert site.client.get("/healthz").status_code == 200


def test_metrics_count_the_requests_by_route_and_the_iterations(site: Site) -> None:
    site.lab.run()
    site.get("/agents/test/loop/history/1")
    answer = site.client.get("/metrics", headers=site.admin)

    assert answer.mimetype == "text/plain"
    assert 'route="/api/v0/agents/<agentId>/loop/history/<iteration>"' in answer.text
    assert "boyd_up 1.0" in answer.text


def test_without_redis_everything_else_is_unavailable_for_now(site: Site, server: Any) -> None:
    server.connected = False
    answer = site.get("/state")

    assert answer.status_code == 503
    assert answer.json["type"] == "/problems/unavailable"
    assert int(answer.headers["Retry-After"]) >= 1


# The agent and its loop


def test_state_shows_who_what_and_the_last_iteration(site: Site) -> None:
    before = site.get("/state").json
    site.lab.run()
    after = site.get("/state").json

    assert before["agent"] == {"id": "test", "name": "test", "model": None}
    assert before["capabilities"]["observers"] == ["p:cpu"]
    assert before["capabilities"]["actions"] == ["p:do"]
    assert set(before["capabilities"]) == {
        *("observers", "orienters", "decisionStrategies", "actions")
    }
    assert before["history"] == {"totalLoops": 0, "lastLoop": None}
    assert after["history"]["totalLoops"] == 1
    assert after["history"]["lastLoop"]["decision"]["action"] == "p:do"


def test_a_trigger_waits_for_the_iteration_and_tells_what_it_came_to(site: Site) -> None:
    answer = site.post("/loop/trigger", {"context": "deploy"})

    assert answer.status_code == 200
    assert answer.json["success"] is True
    assert answer.json["iteration"] == 1
    assert answer.json["context"] == "deploy"
    assert answer.json["result"].items() >= {
        *(("observations", 2), ("decision", "p:do"), ("actionResults", 1))
    }
    assert site.lab.store.history.get(1).trigger == "alice"  # type: ignore[union-attr]


def test_an_asynchronous_trigger_does_not_wait(site: Site) -> None:
    site.dispatcher.held = True
    answer = site.post("/loop/trigger", {"async": True})

    assert answer.status_code == 202
    assert answer.json.items() >= {("success", True), ("status", "triggered"), ("iteration", 1)}


def test_a_trigger_that_outlasts_the_wait_is_accepted(site: Site) -> None:
    site.dispatcher.held = True

    assert site.post("/loop/trigger").status_code == 202
    assert "joined" in site.post("/loop/trigger").json["message"]


def test_a_trigger_is_answered_when_the_iteration_ends_elsewhere(server: Any) -> None:
    site = Site(make_lab(server), server, max_wait=20)
    site.dispatcher.held = True
    answers: list[Any] = []

    def ask() -> None:
        answers.append(site.post("/loop/trigger"))

    thread = threading.Thread(target=ask)
    thread.start()
    while not site.lab.dispatcher.hints:
        thread.join(0.01)
    site.lab.deliver()
    thread.join(120)

    assert answers[0].status_code == 200
    site.services.stop()


def test_a_failed_iteration_is_no_success(site: Site) -> None:
    site.dispatcher.held = True
    site.post("/loop/trigger", {"async": True})
    store = site.lab.store
    site.lab.client.hset(f"boyd:{{{store.agent_id}}}:iteration", "error", "it broke")
    site.lab.deliver()
    answer = site.get("/loop/history/1").json

    assert answer["success"] is False
    assert answer["error"] == "it broke"


def test_a_paused_agent_takes_no_triggers(site: Site) -> None:
    paused = site.post("/pause", {"reason": "maintenance"})
    answer = site.post("/loop/trigger")

    assert paused.json == {
        "success": True,
        "agentId": "test",
        "paused": "maintenance (by alice)",
    }
    assert answer.status_code == 409
    assert answer.json["type"] == "/problems/paused"
    assert site.post("/resume").json == {"success": True, "agentId": "test"}
    assert site.post("/loop/trigger").status_code == 200


def test_the_status_shows_every_field_with_and_without_an_iteration(site: Site) -> None:
    idle = site.get("/loop/status").json
    site.dispatcher.held = True
    site.post("/loop/trigger", {"async": True})
    busy = site.get("/loop/status").json

    assert idle["phase"] == "idle"
    assert idle["startTime"] is idle["currentSituation"] is idle["currentDecision"] is None
    assert set(idle) == set(busy)
    assert busy["currentSituation"] is busy["currentDecision"] is None
    assert busy["phase"] == "start"
    assert busy["iteration"] == 1


def test_the_status_tells_situation_and_decision_as_texts_and_keeps_those_of_the_last_iteration(
    site: Site,
) -> None:
    site.lab.run()
    idle = site.get("/loop/status").json

    assert idle["phase"] == "idle"
    assert idle["currentDecision"] == "p:do" == idle["decision"]["action"]
    assert idle["currentSituation"] == "the cpu is busy" == idle["situation"]["summary"]
    assert idle["startTime"] == site.get("/loop/history/1").json["startedAt"]


def test_absent_fields_of_the_last_loop_are_left_out_of_the_state(site: Site) -> None:
    site.lab.run()
    state = site.get("/state").json

    assert state["agent"]["model"] is None
    assert "error" not in state["history"]["lastLoop"]
    assert state["history"]["lastLoop"] == site.get("/loop/history/1").json


def test_clients_of_the_reference_server_may_send_more_to_a_trigger_and_a_run(site: Site) -> None:
    run = {"title": "t", "description": "d", "foo": 1}

    assert site.post("/loop/trigger", {"foo": 1}).status_code == 200
    response = site.post("/runs", run)
    assert response.status_code == 201
    assert "foo" not in site.get(f"/runs/{response.json['id']}").json


def test_a_misspelt_field_of_an_action_is_refused_since_it_could_mean_that_a_person_be_asked(
    site: Site,
) -> None:
    answer = site.post("/actions/p:do", {"requireApproval": True})

    assert answer.status_code == 422
    assert answer.json["errors"][0]["pointer"] == "/requireApproval"


def test_a_run_tells_the_situation_as_a_text_and_what_it_was_made_of_apart(site: Site) -> None:
    run_id = site.post("/runs", {"title": "t", "description": "d"}).json["id"]
    [listed] = site.get("/runs").json["runs"]

    for result in (site.get(f"/runs/{run_id}").json["result"], listed["result"]):
        assert result["situationAssessment"] == result["summary"]
        assert result["assessments"][0]["source"]


def test_the_history_lists_iterations_and_shows_one_whole(site: Site) -> None:
    site.lab.run()
    site.lab.run()
    listed = site.get("/loop/history").json["iterations"]
    whole = site.get("/loop/history/2").json

    assert [iteration["iteration"] for iteration in listed] == [2, 1]
    assert whole["trace"]["chosen"] == "p:chooses"
    assert len(site.get("/loop/history?limit=1").json["iterations"]) == 1
    assert site.get("/loop/history/3").status_code == 404
    assert site.get("/loop/history/x").status_code == 404


def test_observations_are_those_of_the_last_iteration_first_filtered_then_cut(site: Site) -> None:
    assert site.get("/observations").json == {"observations": [], "total": 0, "filtered": 0}
    site.lab.run()
    cut = site.get("/observations?source=m&limit=1").json

    assert [observation["source"] for observation in cut["observations"]] == ["memory"]
    assert (cut["total"], cut["filtered"]) == (2, 1)
    assert site.get("/observations?limit=1").json["filtered"] == 2


def test_the_situation_is_not_found_before_the_first(site: Site) -> None:
    assert site.get("/situation").status_code == 404
    site.lab.run()
    assert site.get("/situation").json["situation"]["assessments"][0]["findings"] == [
        "the cpu is busy"
    ]


def test_observers_are_listed_with_their_health(site: Site) -> None:
    assert site.get("/observers").json == {"observers": [{"id": "p:cpu", "failures": 0}]}
    site.lab.run()
    [cpu] = site.get("/observers").json["observers"]

    assert cpu["lastSuccessAt"]


# The deployment


def test_agents_and_workers_are_listed(site: Site) -> None:
    [agent] = site.get("/agents").json["agents"]
    [worker] = site.get("/workers").json["workers"]

    assert agent.items() >= {("id", "test"), ("phase", "idle"), ("workers", 1)}
    assert worker["role"] == "worker"


def test_a_bare_path_means_the_only_agent_or_is_not_clear(site: Site) -> None:
    register(site, "second")
    answer = site.get("/state")

    assert answer.status_code == 404
    assert answer.json["type"] == "/problems/no-default-agent"
    assert answer.json["agents"] == ["second", "test"]
    assert site.get("/agents/test/state").json["agent"]["id"] == "test"
    unknown = site.get("/agents/nobody/state").json
    assert unknown["type"] == "/problems/unknown-agent"
    assert "second, test" in unknown["detail"]


def test_freezing_one_agent_and_all_of_them(site: Site) -> None:
    assert site.post("/freeze", {"reason": "x"}).json["frozen"] == "x (by alice)"
    assert site.post("/freeze-all").json["frozen"] == "no reason given (by alice)"
    assert site.get("/agents").json["frozen"]
    assert site.post("/unfreeze").json["frozen"] == "no reason given (by alice)"
    assert site.post("/unfreeze-all").json == {"success": True}
    assert "frozen" not in site.get("/agents").json["agents"][0]


def test_steering_is_audited_with_the_principal_and_the_key(site: Site) -> None:
    site.post("/pause", {"reason": "x"})
    [entry] = [
        fields
        for _, fields in site.store.client.xrange(site.lab.store.audit_trail.open_stream)
        if fields["kind"] == "agent.paused"
    ]
    [key] = site.store.api_keys.all()

    assert (entry["who"], entry["key"], entry["from"]) == ("alice", key.id, "127.0.0.1")


def test_keys_are_made_listed_and_revoked(site: Site) -> None:
    body = {"name": "ci", "principal": "bot", "scopes": ["read"], "expiresIn": 60}
    response = site.post("/keys", body)
    headers = {"Authorization": f"Bearer {response.json['key']}"}

    assert response.status_code == 201
    assert response.json["createdBy"] == "alice"
    assert site.get("/state", headers=headers).status_code == 200
    assert response.json["id"] in [key["id"] for key in site.get("/keys").json["keys"]]
    assert "hash" not in site.get("/keys").text
    assert site.open("DELETE", f"/keys/{response.json['id']}").json["success"]
    assert site.get("/state", headers=headers).status_code == 401
    assert site.open("DELETE", f"/keys/{response.json['id']}").status_code == 404


# Events


def lines(site: Site, number: int, **headers: str) -> list[str]:
    """The first blocks of the event stream."""
    answer = site.get("/events", headers=headers, buffered=False)
    blocks: list[str] = []
    for chunk in answer.response:
        text = chunk.decode() if isinstance(chunk, bytes) else chunk
        blocks += [block for block in text.split("\n\n") if block]
        if len(blocks) >= number:
            break
    answer.close()
    return blocks[:number]


def test_events_go_on_after_the_last_one_that_was_received(site: Site) -> None:
    site.lab.run()
    all_events = site.lab.store.events.after("0-0")
    first, *rest = all_events
    blocks = lines(site, len(rest) + 1, **{"Last-Event-ID": first.id})

    assert blocks[0] == "retry: 2000"
    assert [block.splitlines()[0] for block in blocks[1:]] == [f"id: {event.id}" for event in rest]
    assert blocks[1].splitlines()[1] == f"event: {rest[0].kind}"


def past(site: Site, **headers: str) -> list[str]:
    """The ids that are sent where only past events are wanted."""
    text = site.get("/events?follow=false", headers=headers).text
    return re.findall(r"^id: (.*)$", text, re.MULTILINE)


@pytest.mark.long
def test_a_stream_of_past_events_ends_after_the_newest_and_no_other_does(site: Site) -> None:
    following = site.get("/events", buffered=False)
    stream = iter(following.response)
    next(stream)
    for _ in range(PAGE // 5):
        site.lab.run()
    ids = [event.id for event in site.lab.store.events.after("0-0", 10 * PAGE)]

    assert len(ids) > PAGE
    assert past(site) == past(site, **{"Last-Event-ID": "0-0"}) == ids
    assert past(site, **{"Last-Event-ID": ids[2]}) == ids[3:]
    assert past(site, **{"Last-Event-ID": ids[-1]}) == []
    assert f"id: {ids[0]}\n".encode() in next(stream)
    following.close()
    assert site.get("/events?follow=perhaps").status_code == 422


def test_an_entry_that_is_no_event_is_passed_over(site: Site) -> None:
    stream = f"boyd:{{{site.lab.store.agent_id}}}:events"
    follower = site.store.events([site.lab.store.agent_id])
    follower.wait(0.01)
    for _ in range(PAGE + 1):
        site.lab.client.xadd(stream, {"foo": "bar"})
    site.lab.run()
    events = site.lab.store.events.after("0-0")
    followed = [event for _ in range(2) for _, event in follower.wait(0.01)]

    assert "iteration.started" in [event.kind for event in events]
    assert followed == events
    assert f"id: {events[0].id}\n" in lines(site, 2, **{"Last-Event-ID": "0-0"})[1] + "\n"


def test_an_event_stream_resumed_after_pruning_reports_missed_events(site: Site) -> None:
    site.lab.run()
    last_event = site.lab.store.events.after("0-0")[-1]
    site.lab.client.xtrim(f"boyd:{{{site.lab.store.agent_id}}}:events", maxlen=1, approximate=False)

    assert lines(site, 2, **{"Last-Event-ID": "1-1"})[1].startswith("event: missed")
    assert last_event.id in lines(site, 3, **{"Last-Event-ID": "1-1"})[2]


def test_an_event_stream_resumed_beyond_the_newest_event_reports_missed_events(site: Site) -> None:
    site.lab.run()
    newest = site.lab.store.events.newest()
    lost = f"{int(newest.partition('-')[0]) + 3_600_000}-0"
    answer = site.get("/events", headers={"Last-Event-ID": lost}, buffered=False)
    stream = iter(answer.response)
    opening = next(stream)
    site.lab.run()
    first = site.lab.store.events.after(newest)[0]

    assert b"event: missed" in opening
    assert any(f"id: {first.id}\n".encode() in block for block in stream)
    answer.close()


def test_a_client_that_begins_at_the_beginning_has_missed_nothing(site: Site) -> None:
    assert site.lab.store.events.reaches("0-0")
    site.lab.run()
    assert site.lab.store.events.reaches("0-0")
    site.lab.client.xtrim(f"boyd:{{{site.lab.store.agent_id}}}:events", maxlen=1, approximate=False)
    assert not site.lab.store.events.reaches("0-0")


def test_an_empty_event_stream_does_not_reach_a_later_id(site: Site) -> None:
    assert not site.lab.store.events.reaches("5-0")


@pytest.mark.parametrize("sent", ["x", "1", "1-", f"{2**64}-0", "-1-1", "+"])
def test_an_id_that_is_none_is_refused(site: Site, sent: str) -> None:
    assert site.get("/events", headers={"Last-Event-ID": sent}).status_code == 400


def test_streams_are_limited_and_give_their_place_back(server: Any) -> None:
    site = Site(make_lab(server), server, streams=8)
    site.lab.run()
    open_streams = [site.get("/events", buffered=False) for _ in range(8)]
    refused = site.get("/events")
    assert refused.status_code == 503
    assert refused.headers["Retry-After"]
    for stream in open_streams:
        stream.close()

    def again() -> Any:
        answer = site.get("/events", buffered=False)
        return answer if answer.status_code == 200 else None

    wait_until(again).close()
    for _ in range(20):
        assert site.open("HEAD", "/events").status_code == 200


def test_events_of_an_agent_that_appears_later_wake_those_who_wait(site: Site) -> None:
    changes = site.services.changes
    changes.start()
    seen_before = changes.count
    register(site, "second")
    store = site.store.agent("second")
    result = changes.until(
        lambda: True if changes.count > seen_before else store.loop_control.pause("x"), 15
    )

    assert result is True


def test_a_quiet_stream_gives_signs_of_life_until_its_key_is_revoked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boyd_api.http.event_streams.HEARTBEAT", 0.01)
    monkeypatch.setattr("boyd_api.http.event_streams._VALID", 0)
    stream = site.get("/events", buffered=False).response
    assert [next(stream), next(stream), next(stream)] == [b"retry: 2000\n\n", b":\n\n", b":\n\n"]
    [key] = site.store.api_keys.all()
    site.store.api_keys.revoke(key.id, MAKER)

    assert set(stream) <= {b":\n\n"}


# Retiring


def test_an_agent_that_nobody_runs_is_retired_and_nothing_waits_for_it(desk: Site) -> None:
    approval = desk.waiting()
    desk.dispatcher.held = True
    for worker in desk.store.fleet.workers():
        desk.store.fleet.leave(worker.name)
    run = desk.post("/runs", {"title": "t", "description": "d"}).json["id"]
    response = desk.post("/retire", {"reason": "replaced by another"}).json

    assert (response["approvals"], response["runs"]) == (1, 1)
    assert desk.get("/agents").json["agents"] == []
    [listed] = desk.get("/agents?retired=true").json["agents"]
    assert listed["retiredAt"]
    assert desk.get(f"/approvals/{approval}").json["status"] == "withdrawn"
    assert desk.get(f"/runs/{run}").json["status"] == "cancelled"
    assert desk.get("/loop/status").json["phase"] == "idle"
    audit = desk.lab.store.audit_trail
    audit.seal()
    assert "agent.retired" in [entry.kind for entry in audit.entries()]


def test_a_retired_agent_is_idle_although_observations_wait(desk: Site) -> None:
    desk.dispatcher.held = True
    desk.post("/loop/trigger", {"async": True})
    alert = {"source": "backup", "severity": "error", "data": {}}
    assert desk.post("/intake/json", alert).status_code == 202
    for worker in desk.store.fleet.workers():
        desk.store.fleet.leave(worker.name)
    desk.post("/retire", {})

    assert desk.lab.client.llen("boyd:{desk}:intake") == 1
    assert desk.get("/loop/status").json["phase"] == "idle"


def test_an_agent_that_runs_is_not_retired(desk: Site) -> None:
    approval = desk.waiting()
    refused = desk.post("/retire", {})

    assert refused.status_code == 409
    assert refused.json["type"].endswith("agent-runs")
    assert desk.get(f"/approvals/{approval}").json["status"] == "pending"


def test_a_retired_agent_is_not_the_one_that_is_meant_and_is_back_when_it_is_started(
    site: Site,
) -> None:
    register(site, "other")
    assert site.get("/state").status_code == 404
    [name] = [a for a in site.store.fleet.agents() if a != "other"]
    entry = site.store.fleet.agents()["other"]
    site.store.fleet.retire(entry, utc_now())
    site.services.forget_agents()

    assert site.get("/state").json["agent"]["id"] == name
    site.store.fleet.register(entry)
    site.services.forget_agents()
    assert site.get("/state").status_code == 404


def test_the_root_leads_browsers_to_the_documentation_and_tells_programs_where_things_are(
    site: Site,
) -> None:
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    led = site.client.get("/", headers={"Accept": browser})

    assert (led.status_code, led.headers["Location"]) == (302, "/console/")
    for headers in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
        response = site.client.get("/", headers=headers)
        assert response.status_code == 200
        assert (response.json["docs"], response.json["openapi"]) == ("/docs", "/openapi.json")


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/api/v0/approvals/approve", "POST"),
        ("/api/v0/agents/test/approvals/deny", "POST"),
        ("/api/v0/approvals/some-id", "GET, HEAD"),
        ("/api/v0/runs", "GET, HEAD, POST"),
    ],
)
def test_allow_names_the_methods_of_that_path_and_no_other(
    site: Site, path: str, methods: str
) -> None:
    answer = site.client.open(path, method="PUT", headers=site.admin)

    assert (answer.status_code, answer.headers["Allow"]) == (405, methods)
