"""The flight record of an iteration: times, reasons, comparison, and what may be seen of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from api_kit import Site
from boyd import Agent
from boyd.models import LoopResult, ObserverRun, PhaseRun, Problem, no_op, utc_now
from boyd.testing import Lab
from boyd_api.console.charts import WIDTH, chart
from boyd_api.console.history_page import compare
from console_kit import Browser
from kit import Recorder, choice, chooses, fails, plugin, reads, seen, sees
from lab_redis import client_of

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x07" + "x" * 10_000
PAGE = "/console/agents/test/iterations"


@pytest.fixture
def lab(server: Any) -> Lab:
    """An agent whose hook changes decisions, and whose second strategy never decides."""
    parts = [
        sees("cpu", seen("cpu", data={"load": 4, "text": HOSTILE}, severity="critical")),
        sees("disk", *[seen("disk", data={"mb": n}) for n in range(30)]),
        fails(),
        reads("load", "busy"),
        reads("calm", "nothing to see", confidence=0.9),
        chooses(choice(rationale=HOSTILE)),
        chooses(choice(), "spare"),
        Recorder(output=HOSTILE).action(),
    ]
    redis = client_of(server)
    raised = plugin(*parts, on_decide=lambda: {"estimatedImpact": "some"})
    return Lab(Agent("test", plugins=[raised]), client=redis)


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


def loop_result(**fields: Any) -> LoopResult:
    now = utc_now()
    defaults = {"id": "a:1", "agent_id": "a", "iteration": 1, "trigger": "beat", "success": True}
    defaults |= {"duration": 900.0, "started_at": now, "ended_at": now, "decision": no_op("calm")}
    return LoopResult(**{**defaults, **fields})


def phase(name: Any, offset: float, duration: float, **fields: Any) -> PhaseRun:
    return PhaseRun(phase=name, offset=offset, duration=duration, **fields)


def observer(name: str, offset: float | None, duration: float, **fields: Any) -> ObserverRun:
    defaults = {"host": "host-a", "worker": "host-a.1.abcd", "observations": 1, "batch": 1}
    return ObserverRun(id=name, offset=offset, duration=duration, **{**defaults, **fields})


def test_the_record_shows_what_was_seen_judged_decided_and_done(ann: Browser, lab: Lab) -> None:
    lab.run()
    page = ann.get(f"{PAGE}/1")
    assert page.title.startswith("test #1: acted")
    for text in (
        "31 observations",
        "p:load confidence 0.50 no anomaly busy",
        "p:calm confidence 0.90 no anomaly nothing to see",
        "chosen p:chooses",
        "passed over p:spare",
        "p changed estimatedImpact of the decision",
        'absent → "some"',
        "not verified",
        "action.succeeded",
        "p:fails",
        "boom",
    ):
        assert text in page.text
    assert "and 20 more of this source" in page.text


def test_hostile_texts_stay_text(ann: Browser, lab: Lab) -> None:
    lab.run()
    lab.run()
    for path in (f"{PAGE}/1", f"{PAGE}/2?with=1"):
        page = ann.get(path)
        assert page.status == 200
        assert "<img src=x" not in page.source


def test_the_worst_observations_come_first(ann: Browser, lab: Lab) -> None:
    lab.run()
    text = ann.get(f"{PAGE}/1").text
    assert text.index("critical cpu") < text.index("unrated disk")


def test_the_neighbours_are_linked_as_far_as_they_exist(ann: Browser, lab: Lab) -> None:
    for _ in range(3):
        lab.run()
    first, second, third = (ann.get(f"{PAGE}/{number}").source for number in (1, 2, 3))
    assert 'rel="prev"' not in first
    assert f'href="{PAGE}/2" data-key="n" rel="next"' in first
    assert f'href="{PAGE}/1" data-key="p" rel="prev"' in second
    assert 'rel="next"' not in third


def test_a_record_is_also_json(ann: Browser, lab: Lab) -> None:
    lab.run()
    page = ann.get(f"{PAGE}/1/record.json")
    assert page.headers["Content-Type"] == "application/json"
    assert LoopResult.from_json(page.source) == lab.store.history.get(1)
    assert json.loads(page.source)["iteration"] == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [("9", "there was no iteration 9 yet; the newest is 1"), ("x", "is not the number")],
)
def test_an_absent_iteration_is_not_found_with_the_reason(
    ann: Browser, lab: Lab, name: str, reason: str
) -> None:
    lab.run()
    page = ann.get(f"{PAGE}/{name}")
    assert page.status == 404
    assert reason in page.text


def test_the_iteration_in_flight_is_shown_as_far_as_it_is(ann: Browser, lab: Lab) -> None:
    lab.run()
    lab.store.loop_control.begin("somebody")
    page = ann.get(f"{PAGE}/2")
    assert page.title.startswith("test #2: in flight")
    assert "It has not decided." in page.text
    assert 'data-live="iteration phase' in page.source
    assert "No phase has ended yet" in page.text


def test_a_reader_without_admin_sees_why_audit_entries_are_missing(site: Site, lab: Lab) -> None:
    lab.run()
    page = Browser(site, site.key("read")).get(f"{PAGE}/1")
    assert "The audit entries cannot be shown: your key lacks the scope 'admin'" in page.text
    assert "action.succeeded" not in page.text


def test_two_iterations_are_compared(ann: Browser, lab: Lab) -> None:
    lab.run()
    lab.whole.freezes.freeze("moving", "test")
    lab.run()
    page = ann.get(f"{PAGE}/2?with=1")
    assert "Compared with iteration 1" in page.text
    assert "Actions are frozen: moving" in page.text
    assert "p:do ok" in page.text
    absent = ann.get(f"{PAGE}/2?with=77")
    assert absent.status == 200
    assert "It cannot be compared: there was no iteration 77 yet" in absent.text


def test_a_comparison_names_only_what_differs() -> None:
    here = loop_result(
        observations=[seen("cpu", data={"load": 1, "cores": 2}), seen("gone", data={"b": 1})]
    )
    there = loop_result(
        observations=[seen("cpu", data={"load": 3, "cores": 2})], decision=no_op("calm")
    )
    differences = {part.title: part.differences for part in compare(here, there)}
    assert [
        (difference.name, difference.here, difference.there)
        for difference in differences["Observations"]
    ] == [
        ("cpu: load", "1", "3"),
        ("gone", "seen", ""),
    ]
    assert not any(differences[title] for title in differences if title != "Observations")
    many = loop_result(observations=[seen(f"disk-{n}") for n in range(100)])
    [section] = [part for part in compare(many, there) if part.title == "Observations"]
    assert len(section.differences) + section.more == 101


def test_lost_attempts_have_rows_of_their_own() -> None:
    runs = [
        phase("observe", 10, 300),
        phase("observe", 20, 100, lost=True, batch=1, worker="host-a.1.abcd"),
        phase("orient", 320, 200, lost=True, worker="host-a.1.abcd"),
        phase("orient", 530, 50, attempt=2, worker="host-b.1.abcd"),
    ]
    observer_runs = [observer("p:cpu", 130, 90, attempt=2), observer("p:ill", 140, 20)]
    error = Problem(id="p:ill", phase="observe", error="boom", host="host-a")
    record_chart = chart(
        loop_result(phase_runs=runs, observer_runs=observer_runs, observer_errors=[error])
    )
    assert [(bar.label, bar.state, bar.place) for bar in record_chart.bars] == [
        ("observe", "ok", ""),
        ("p:cpu", "ok", "batch 1, host-a.1.abcd, attempt 2"),
        ("p:ill", "failed", "batch 1, host-a.1.abcd"),
        ("observe, batch 1", "lost", "host-a.1.abcd"),
        ("orient", "lost", "host-a.1.abcd"),
        ("orient", "ok", "host-b.1.abcd, attempt 2"),
    ]
    assert all(bar.x >= 0 and bar.x + bar.width <= WIDTH for bar in record_chart.bars)


def test_a_long_wait_between_phases_is_cut_out() -> None:
    day = 86_400_000.0
    runs = [phase("orient", 0, 100), phase("decide", day, 100), phase("act", day + 100, 200)]
    record_chart = chart(loop_result(phase_runs=runs, duration=day + 300))
    assert [cut.length for cut in record_chart.cuts] == ["23 h"]
    assert [bar.took for bar in record_chart.bars] == ["100 ms", "100 ms", "200 ms"]
    first, second, third = record_chart.bars
    assert third.width == pytest.approx(2 * first.width, rel=0.01)
    assert second.x > first.x + first.width


def test_of_many_observers_the_longest_are_shown() -> None:
    observers = [observer(f"p:{n}", 1.0, float(n)) for n in range(100)]
    record_chart = chart(
        loop_result(phase_runs=[phase("observe", 0, 100)], observer_runs=observers)
    )
    assert len(record_chart.bars) == 41
    assert record_chart.others == 60
    assert "p:99" in [bar.label for bar in record_chart.bars]


def test_a_record_without_times_has_no_chart() -> None:
    assert chart(loop_result(observer_runs=[observer("p:cpu", None, 3)])).bars == []
