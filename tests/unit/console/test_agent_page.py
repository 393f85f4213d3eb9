"""The page of an agent: the ring, the strip, observers, budgets, and the forms that stop it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from api_kit import Site
from boyd import naming
from boyd.models import Budget, ObserverHealth, Phase, Sandbox, utc_now
from boyd.models.responses import IterationSummary, ObserverState
from boyd.plugin import Action, Orienter
from boyd.store import WorkerInfo
from boyd.testing import Lab
from boyd_api.console import charts
from boyd_api.console.agent_page import observer_rows
from boyd_api.console.charts import ring, strip
from console_kit import Browser
from kit import Recorder, agent, assessed, choice, chooses, fails, overdue, reads, seen, sees
from lab_redis import client_of
from past_kit import problem

HOSTILE = "<script>alert(1)</script>\u202e" + "x" * 10_000


@pytest.fixture
def lab(server: Any) -> Lab:
    """An agent whose action may run twice an hour."""
    action = Recorder().action(budget=Budget(limit=2, window=3600))
    parts = [sees("cpu", seen("cpu")), fails(), reads("load", HOSTILE), chooses(choice()), action]
    redis = client_of(server)
    return Lab(agent(*parts), client=redis)


@pytest.fixture
def site(lab: Lab, server: Any) -> Iterator[Site]:
    """An API over it."""
    new_site = Site(lab, server)
    yield new_site
    new_site.services.stop()


@pytest.fixture
def ann(site: Site) -> Browser:
    """The browser of somebody who may do everything."""
    return Browser(site, site.key("admin", person=True))


PAGE = "/console/agents/test"


def test_an_agent_that_has_not_looked_says_so(ann: Browser) -> None:
    page = ann.get(PAGE)
    assert page.status == 200
    assert page.title.startswith("test: idle")
    assert "It has not looked yet" in page.text
    assert "No iteration has ended yet, so no situation is known." in page.text


def test_a_part_that_fails_leaves_the_page_and_is_in_the_log(
    ann: Browser, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def strip_with_mistake(_: object) -> None:
        raise KeyError("gap")

    monkeypatch.setattr(charts, "strip", strip_with_mistake)
    page = ann.get(PAGE)

    assert page.status == 200
    assert "The latest iterations cannot be read: the log of the API has details." in page.text
    [record] = [record for record in caplog.records if record.exc_info]
    assert f"a part of the page {PAGE} cannot be read" in record.getMessage()
    assert "KeyError: 'gap'" in caplog.text


def test_the_problem_what_waits_and_what_was_done_come_before_the_ring(
    ann: Browser, lab: Lab
) -> None:
    for _ in range(3):
        lab.run()
    page = ann.get(PAGE)
    order = ["Waits for you", "What is wrong", "What waits", "What was done", 'class="ring"']
    places = [page.source.index(text) for text in order]
    assert places == sorted(places)
    assert "1 observer run failed (p:fails): what may be over is shown until" in page.text
    assert "waits for an answer" in page.text.partition("Waits for you : ")[2][:60]


def test_the_beginning_of_an_open_incident_is_apart_from_its_reason(server: Any) -> None:
    redis = client_of(server)
    lab = Lab(agent(reads("judge", anomalies=[problem()])), client=redis)
    lab.run()
    site = Site(lab, server)
    page = Browser(site, site.key("admin", person=True)).get(PAGE)
    site.services.stop()
    assert "Open incident : nothing is being done , began" in page.text


def test_a_rollback_is_not_taken_for_another_execution(server: Any) -> None:
    redis = client_of(server)
    action = Recorder().action(verify=lambda: "worse", rollback=lambda: "undone")
    lab = Lab(agent(chooses(choice()), action), client=redis)
    lab.run()
    [execution] = lab.store.executions.page(1).executions
    overdue(lab, naming.verification(execution.id))
    site = Site(lab, server)
    text = Browser(site, site.key("admin", person=True)).get(PAGE).text
    site.services.stop()
    assert "succeeded undo of p:do" in text
    assert text.count("undo of") == 1


def test_an_agent_whose_approvals_others_answer_does_not_wait_for_the_reader(
    site: Site, lab: Lab, ann: Browser
) -> None:
    for _ in range(3):
        lab.run()
    reader = Browser(site, site.key("read", person=True))
    for path in ("/console/agents", PAGE):
        lab.deliver()  # its workers are alive
        assert "Waits for you" in ann.get(path).text
        lab.deliver()
        assert "Waits for others" in reader.get(path).text
    lab.deliver()
    assert "1 waits for a person" in reader.get("/console/agents").text


def test_the_page_shows_the_last_iteration_and_a_mark_for_each(ann: Browser, lab: Lab) -> None:
    for _ in range(3):
        lab.run()
    page = ann.get(PAGE)
    assert "Iteration 1: acted · p:do ok" in page.text
    assert "Iteration 3: sent for approval" in page.text
    assert "2 \u00d7 acted" in page.text
    assert "1 \u00d7 sent for approval" in page.text
    assert "used up: 2 of 2 in 1 h" in page.text
    assert "p:do, by p:chooses" in page.text
    assert f"{PAGE}/approvals/{lab.store.approvals.page(1).pending[0].id}" in page.source


def test_an_execution_that_waits_for_its_turn_can_be_cancelled(server: Any) -> None:
    done: list[bool] = []
    action = Action(name="do", execute=lambda: done.append(True), verify=lambda: None)
    lab = Lab(agent(action), client=client_of(server))
    site = Site(lab, server)
    site.post("/actions/p:do")
    id = site.post("/actions/p:do?wait=0").json["executionId"]
    assert "executions/cancel" not in Browser(site, site.key("read", person=True)).get(PAGE).source
    ann = Browser(site, site.key("read", "actions", person=True))
    ann.send(ann.get(PAGE).form("/executions/cancel"))

    assert site.get(f"/executions/{id}").json["result"]["prevented"] == "cancelled"
    assert "executions/cancel" not in ann.get(PAGE).source
    assert done == [True]
    site.services.stop()


def test_a_failing_observer_is_first_with_its_error(ann: Browser, lab: Lab) -> None:
    lab.run()
    text = ann.get(PAGE).text
    assert text.index("p:fails fails 1 failure in a row") < text.index("p:cpu ok")
    assert "boom" in text


def test_hostile_findings_stay_text_and_are_cut(ann: Browser, lab: Lab) -> None:
    lab.run()
    page = ann.get(PAGE)
    assert "<script>alert" not in page.source
    assert "x" * 2000 not in page.source


def test_a_click_triggers_an_iteration(ann: Browser, lab: Lab) -> None:
    page = ann.send(ann.get(PAGE).form("/trigger"))
    assert page.path == PAGE
    assert lab.store.loop_control.iteration() == 1


def test_two_clicks_freeze_the_agent_or_all_of_them(ann: Browser, lab: Lab) -> None:
    form = ann.get(f"{PAGE}?do=freeze").form("/freeze")
    page = ann.send(form, scope="agent", reason="the database moves")
    assert page.path == PAGE
    assert "FROZEN test: the database moves (by alice)" in page.text
    lab.run()
    assert "Actions are frozen" in ann.get(PAGE).text
    ann.send(ann.get(f"{PAGE}?do=freeze").form("/freeze"), scope="all", reason="everything moves")
    assert "FROZEN all agents: everything moves (by alice)" in ann.get(PAGE).text
    ann.send(ann.get(f"{PAGE}?do=unfreeze").form("/unfreeze"), scope="all")
    assert lab.whole.freezes.everywhere() is None
    assert lab.whole.freezes.of("test") is not None


def test_a_key_for_one_agent_freezes_it_alone(site: Site, lab: Lab) -> None:
    browser = Browser(site, site.key("admin", agents=["test"]))
    page = browser.get(f"{PAGE}?do=freeze")
    assert "All agents of this deployment" not in page.text
    refused = browser.send(page.form("/freeze"), scope="all")
    assert refused.status == 403
    assert "limited to test" in refused.text
    assert lab.whole.freezes.everywhere() is None
    assert browser.send(page.form("/freeze"), scope="none").status == 400


def test_unfreezing_needs_a_fresh_login(ann: Browser, site: Site, lab: Lab) -> None:
    lab.whole.freezes.freeze("moving", "test")
    form = ann.get(f"{PAGE}?do=unfreeze").form("/unfreeze")
    for session in site.store.login_sessions.all():
        site.store.client.hset(f"boyd:{{*}}:session:{session.id}", "openedAt", 1)
    page = ann.send(form, scope="agent")
    assert page.path.startswith("/console/login")
    assert lab.whole.freezes.of("test") is not None


def test_an_agent_is_paused_with_a_reason_and_resumed(ann: Browser, lab: Lab) -> None:
    page = ann.send(ann.get(f"{PAGE}?do=pause").form("/pause"), reason="maintenance")
    assert "PAUSED test: maintenance (by alice)" in page.text
    assert page.title.startswith("test: paused")
    ann.send(page.form("/resume"))
    assert lab.store.loop_control.status().paused is None


def test_a_reader_sees_no_buttons_and_cannot_use_them(site: Site, lab: Lab, ann: Browser) -> None:
    browser = Browser(site, site.key("read"))
    page = browser.get(f"{PAGE}?do=freeze")
    assert page.status == 200
    assert not any(f'action="{PAGE}/{verb}"' in page.source for verb in ("trigger", "freeze"))
    form = ann.get(f"{PAGE}?do=freeze").form("/freeze")
    theirs = browser.get(PAGE).form("/logout").fields
    assert browser.post(form.action, {**theirs, "scope": "agent"}).status == 403
    assert lab.whole.freezes.of("test") is None


def test_without_workers_the_page_says_what_is_missing(site: Site, ann: Browser) -> None:
    for worker in site.store.fleet.workers():
        site.store.fleet.leave(worker.name)
    page = ann.get(PAGE)
    assert page.title.startswith("test: not watching")
    assert "no worker consumes the queue loop" in page.text
    assert "boyd worker -Q loop" in page.text


def test_the_phase_in_flight_is_shown_with_its_worker(ann: Browser, lab: Lab) -> None:
    lab.store.loop_control.begin("test")
    page = ann.get(PAGE)
    assert "test: start" in page.title
    assert "waits for a worker" in page.text
    assert "is at start" in page.source


@pytest.mark.parametrize(
    ("phase", "states"),
    [
        ("idle", ["rest"] * 4),
        ("start", ["next"] * 4),
        ("orient", ["done", "now", "next", "next"]),
        ("complete", ["done"] * 4),
    ],
)
def test_the_ring_shows_how_far_an_iteration_is(phase: Phase, states: list[str]) -> None:
    assert [step.state for step in ring(phase, None)] == states


def test_an_unusual_time_without_iterations_is_cut_out_and_named() -> None:
    now = utc_now()
    starts = [now + timedelta(seconds=10 * number) for number in range(5)]
    starts += [start + timedelta(hours=3) for start in starts]
    past = [
        IterationSummary(
            iteration=number,
            trigger="beat",
            success=True,
            observations=0,
            action_results=0,
            runs=[],
            started_at=at,
            ended_at=at,
            duration=1.0,
        )
        for number, at in enumerate(starts, 1)
    ]
    marks = strip(past[::-1])
    assert [mark.iteration for mark in marks] == list(range(1, 11))
    assert [mark.iteration for mark in marks if mark.gap] == [6]
    assert marks[5].gap == "2 h 59 min"
    assert strip([]) == []
    assert len(strip(past[:1])) == 1


def test_an_observer_that_backs_off_says_until_when() -> None:
    now = utc_now()
    later = now + timedelta(minutes=5)
    ill = ObserverHealth(failures=3, last_error="boom", last_error_at=now, backoff_until=later)
    states = [ObserverState(id="p:ill", **dict(ill)), ObserverState(id="p:new")]
    rows = observer_rows(states, None, now)
    assert [(row.health.id, row.standing, row.until) for row in rows] == [
        ("p:ill", "backs off", later),
        ("p:new", "never ran", None),
    ]
    [again, _] = observer_rows(states, None, later)
    assert again.standing == "fails"


SCHEDULE = {"schedule": "0 8 * * mon-fri", "timezone": "Europe/Vienna"}


def test_the_pages_show_the_schedule_and_when_actions_run_alone(server: Any) -> None:
    office = {"name": "office hours", "open": ["* 8-16 * * *"]}
    alone = {"p:do": {"when": "decision.confidence > 0.5"}}
    scheduled_agent = agent(Recorder().action(), windows=[office], autonomy=alone, **SCHEDULE)
    redis = client_of(server)
    site = Site(Lab(scheduled_agent, client=redis), server)
    beat: dict[str, Any] = {
        "name": "b",
        "role": "beat",
        "host": "here",
        "pid": 1,
        "queues": [],
        "version": "1",
    }
    site.store.fleet.beat(WorkerInfo(**beat, agents=["test"], started_at=utc_now()))
    try:
        browser = Browser(site, site.key("admin", person=True))
        text = browser.get(PAGE).text
        agents = browser.get("/console/agents").text
    finally:
        site.services.stop()

    assert "looks when somebody triggers it, and at 0 8 * * mon-fri (Europe/Vienna)" in text
    assert "p:do in office hours when decision.confidence > 0.5" in text
    assert "looks when somebody triggers it, and at 0 8 * * mon-fri (Europe/Vienna)" in agents
    assert re.search(r"next in \d", agents)


def test_the_right_to_act_is_revoked_and_restored_with_a_form(ann: Browser, lab: Lab) -> None:
    page = ann.send(ann.get(f"{PAGE}?do=revoke").form("/revoke"), reason="stolen key")
    assert "REVOKED test: stolen key (by alice)" in page.text
    assert lab.store.loop_control.status().revoked == "stolen key (by alice)"
    assert "revoked" in ann.get("/console/agents").text

    ann.send(ann.get(f"{PAGE}?do=restore").form("/restore"))
    assert lab.store.loop_control.status().revoked is None
    assert "Nothing is revoked" in ann.get(f"{PAGE}?do=restore").text


def test_a_click_revokes_a_grant(server: Any) -> None:
    redis = client_of(server)
    lab = Lab(agent(chooses(choice()), Recorder().action(verify=lambda: True)), client=redis)
    site = Site(lab, server)
    ann = Browser(site, site.key("admin", person=True))
    grant = {"id": "g", "atLeast": 0.9, "since": 1, "until": 4e12, "by": ["bob"]}
    record = {"label": "slow (high)", "effective": 99, "failed": 1, "grant": grant}
    lab.client.hset("boyd:{test}:track:p:do", "s", json.dumps(record))

    page = ann.get(PAGE)
    assert "runs alone p:do : slow (high) worked 99 of 100 times; at least 9" in page.text
    assert "allowed by bob" in page.text
    page = ann.send(page.form("/revoke-grant"))
    site.services.stop()

    assert page.path == PAGE
    assert "runs alone p:do" not in page.text
    [left] = lab.store.track_records.all(["p:do"])
    assert (left.grant, left.ended) == (None, "revoked")


def test_a_situation_in_which_no_orienter_states_a_confidence_shows_none(server: Any) -> None:
    calm = Orienter(name="sense", orient=lambda: assessed("calm", confidence=None))
    lab = Lab(agent(calm), client=client_of(server))
    lab.run()
    site = Site(lab, server)
    page = Browser(site, site.key("read")).get(PAGE)
    site.services.stop()

    assert "calm" in page.text
    assert "confidence 0.00" not in page.text


def test_the_page_shows_the_manifest_of_each_action(server: Any) -> None:
    box = Sandbox(user="worker", files=["/srv/work"], network=["api.example.com:443"], cpu=5)
    action = Recorder().action(risk="high", sandbox=box)
    redis = client_of(server)
    site = Site(Lab(agent(action), client=redis), server)
    page = Browser(site, site.key("read")).get(PAGE)
    site.services.stop()

    assert re.search(r"reversibility unknown\s*,\s*auto\s*,\s*at most", page.text)
    assert "sandbox: user worker; writes to /srv/work; reaches api.example.com:443; cpu 5 s" in (
        " ".join(page.text.split())
    )
