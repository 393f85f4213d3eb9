"""Incidents: which events of a target belong together, and what became of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from boyd.export.archive.alert_events import alert_events, is_link, links_in
from boyd.export.archive.incident_grouping import AnomalySighting, Look, anomaly_events, group
from boyd.export.archive.incident_report import report
from boyd.export.archive.period_iterations import PastIteration, choose
from boyd.export.observed_series import ObservedSeries
from boyd.models import Anomaly, Level, Observation
from boyd.models.incident import EventKind, TargetEvent
from past_kit import alert, at, iteration, problem

HOSTILE = "<script>alert(1)</script> | `x` [a](javascript:b)\n# h"


def sighting(
    number: int, minutes: float, *anomalies: Anomaly, run: int = 0, blind: str = ""
) -> AnomalySighting:
    past = iteration(number, minutes, *anomalies or (problem(),))
    assert past.situation is not None
    return AnomalySighting(
        agent_id="desk",
        name=str(number),
        run=run,
        began=past.started_at,
        ended=past.ended_at,
        anomalies=past.situation.open_anomalies,
        assessed=True,
        blind=frozenset(blind.split()),
    )


def event(
    kind: EventKind, begin: float, end: float, state: str = "over", **more: Any
) -> TargetEvent:
    fields: dict[str, Any] = {"agent_id": "desk", "title": kind, "ref": f"{kind}:{begin}", **more}
    return TargetEvent(at=at(begin), until=at(end), kind=kind, state=state, **fields)


def periods(*events: TargetEvent) -> list[tuple[float, float]]:
    """The incidents in minutes, newest first."""
    return [
        ((it.since - at(0)) / timedelta(minutes=1), (it.until - at(0)) / timedelta(minutes=1))
        for it in group("web-3", events)[0]
    ]


def test_iterations_in_a_row_are_one_anomaly_however_slow_the_loop_is() -> None:
    events = anomaly_events([sighting(1, 0), sighting(2, 60), sighting(3, 120)])

    assert [(it.at, it.until) for it in events] == [(at(0), at(120) + timedelta(seconds=1))]


def test_a_flicker_is_one_anomaly_that_came_back() -> None:
    events = anomaly_events([sighting(1, 0, run=1), sighting(3, 2, run=2), sighting(5, 4, run=3)])

    assert [it.detail for it in events] == ["endpoint on web-3, came back 2 times"]


def test_an_anomaly_that_was_gone_for_long_is_another_one() -> None:
    events = anomaly_events([sighting(1, 0, run=1), sighting(9, 30, run=8)])

    assert [it.at for it in events] == [at(0), at(30)]


def test_an_anomaly_that_ends_beside_another_one_is_over() -> None:
    disk = problem(type="disk-full")
    events = anomaly_events([sighting(1, 0, problem(), disk), sighting(2, 60, disk)])

    assert {it.detail: it.state for it in events} == {
        "endpoint on web-3": "over",
        "disk on web-3": "open",
    }


def test_an_anomaly_is_not_over_while_its_plugin_cannot_look() -> None:
    blind = Look(at(60), assessed=True, blind=frozenset(["http"]))
    other = Look(at(60), assessed=True, blind=frozenset(["files"]))

    assert [it.state for it in anomaly_events([sighting(1, 0)], [blind])] == ["open"]
    assert [it.state for it in anomaly_events([sighting(1, 0)], [blind, other])] == ["over"]


def test_an_anomaly_that_its_plugin_could_not_see_for_a_while_did_not_come_back() -> None:
    disk = problem(type="disk-full")
    unseen = sighting(2, 60, disk, run=0, blind="http")
    others = [Look(at(61), assessed=True, blind=frozenset(["http"]))]
    events = anomaly_events([sighting(1, 0), unseen, sighting(4, 120, run=1)], others)

    details = [(it.detail, it.state) for it in events if it.detail.startswith("endpoint")]
    assert details == [("endpoint on web-3", "open")]


def test_an_anomaly_that_was_over_before_numbers_began_again_is_another_one() -> None:
    well = Look(ended=at(10), assessed=True, blind=frozenset())
    events = anomaly_events([sighting(500, 0, run=500), sighting(3, 30, run=2)], [well])

    assert [it.at for it in events] == [at(0), at(30)]


def test_an_anomaly_has_its_worst_severity_and_the_description_of_that_time() -> None:
    mild = problem(type="endpoint-slow", severity="low", description="slow")
    grave = problem(severity="critical", description="down")
    (anomaly,) = anomaly_events([sighting(1, 0, mild), sighting(2, 1, grave), sighting(3, 2, mild)])

    assert (anomaly.severity, anomaly.title) == ("critical", "down")


def test_overlapping_anomalies_are_one_incident() -> None:
    assert periods(event("anomaly", 0, 10), event("anomaly", 5, 30)) == [(0, 30)]


def test_anomalies_with_quiet_between_them_are_two_incidents() -> None:
    assert periods(event("anomaly", 0, 10), event("anomaly", 15, 30)) == [(15, 30), (0, 10)]
    assert periods(event("anomaly", 0, 10), event("anomaly", 14.9, 30)) == [(0, 30)]


def test_an_action_that_outlasts_the_anomaly_prolongs_the_incident() -> None:
    events = [event("anomaly", 0, 5), event("action", 4, 40, "succeeded"), event("anomaly", 44, 45)]

    assert periods(*events) == [(0, 45)]


def test_a_verdict_after_the_end_of_the_anomaly_belongs_to_the_incident() -> None:
    verdict = event("verdict", 4, 60, "effective", ref="loop:1")
    events = [event("anomaly", 0, 5), event("action", 3, 4, "succeeded", ref="loop:1"), verdict]
    (incident,), others = group("web-3", events)

    assert incident.until == at(60)
    assert incident.events[-1] == verdict
    assert incident.outcome == "effective: action"
    assert others == []


def test_two_agents_on_one_target_share_an_incident() -> None:
    (incident,), _ = group(
        "web-3",
        [event("anomaly", 0, 5), event("anomaly", 2, 9, agent_id="other", severity="high")],
    )

    assert [it.agent_id for it in incident.events] == ["desk", "other"]
    assert incident.severity == "high"


def test_an_action_without_any_anomaly_is_no_incident() -> None:
    deploy = event("action", 0, 1, "succeeded")
    incidents, others = group("web-3", [deploy, event("anomaly", 3, 4)])

    assert [it.since for it in incidents] == [at(3)]
    assert others == [deploy]


def test_an_incident_goes_on_while_an_anomaly_is_open_whatever_ran_meanwhile() -> None:
    events = [event("anomaly", 0, 5, "open"), event("action", 4, 5), event("anomaly", 30, 31)]

    assert periods(*events) == [(0, 31)]


def test_an_incident_goes_on_while_an_approval_waits() -> None:
    events = [event("anomaly", 0, 1), event("approval", 1, 50, "pending"), event("anomaly", 50, 51)]
    (incident,), _ = group("web-3", events)

    assert incident.open
    assert incident.outcome == "waits for approval: approval"


@pytest.mark.parametrize(
    ("sent", "severity"),
    [
        ([alert(severity="warning"), alert()], "critical"),
        ([alert(status="resolved"), alert()], "critical"),
        ([alert(), alert(severity="warning"), alert(status="resolved")], "critical"),
        ([alert(status="resolved")], None),
    ],
)
def test_an_alert_that_is_sent_again_has_its_worst_severity(
    sent: list[Observation], severity: Level | None
) -> None:
    sightings = [sighting(number, number) for number in range(len(sent))]
    iterations = [PastIteration([item], None, at(0), at(0)) for item in sent]
    (only,) = alert_events("web-3", sightings, iterations)

    assert only.severity == severity


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("no effect", "no effect: action by eve"),
        ("worse, undone", "made it worse and was undone: action by eve"),
        ("being verified", "being verified: action by eve"),
    ],
)
def test_the_outcome_says_whether_it_helped(state: str, sentence: str) -> None:
    action = event("action", 0, 1, "succeeded", ref="loop:1", by="eve")
    verdict = event("verdict", 1, 2, state, ref="loop:1")
    (incident,), _ = group("web-3", [event("anomaly", 0, 1), action, verdict])

    assert incident.outcome == sentence


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        ("effective", "made it worse and was undone: action by eve"),
        ("no effect", "made it worse, and undoing it restored nothing: action by eve"),
        ("being verified", "made it worse: action by eve"),
    ],
)
def test_the_outcome_says_whether_undoing_it_by_hand_has_helped(
    verdict: str, sentence: str
) -> None:
    undo = {"ref": "rollback:loop:1", "by": "ann"}
    events = [
        event("anomaly", 0, 1),
        event("action", 0, 1, "succeeded", ref="loop:1", by="eve"),
        event("verdict", 1, 2, "worse", ref="loop:1"),
        event("action", 3, 4, "succeeded", **undo),
        event("verdict", 4, 5, verdict, **undo),
    ]
    (incident,), _ = group("web-3", events)

    assert incident.outcome == sentence


def test_the_outcome_without_a_verdict_claims_no_effect() -> None:
    unchecked = event("action", 0, 1, "succeeded")
    (with_action,), _ = group("web-3", [event("anomaly", 0, 1), unchecked])
    (without,), _ = group("web-3", [event("anomaly", 0, 1)])

    assert with_action.outcome == "effect not checked: action"
    assert without.outcome == "no action ran"


def test_a_number_too_large_for_a_float_is_in_no_plot() -> None:
    series = ObservedSeries()
    for second, value in enumerate((1, 2, 10**400)):
        observation = Observation(source="x", type="metric", data={"load": second, "count": value})
        series.add(second, [observation])

    points = {row.name: len(row.points) for row in series.most_telling([])}
    assert points == {"x load": 3, "x count": 2}


def test_a_choice_is_even_and_keeps_both_ends() -> None:
    assert choose(range(10), 20) == list(range(10))
    assert choose(range(101), 5) == [0, 25, 50, 75, 100]


@pytest.mark.parametrize(
    "text",
    [
        "javascript:alert(1)",
        "//evil.example",
        "http://",
        "ftp://a/b",
        "https://user:secret@a.example/",
        "https://a.example/ onmouseover=x",
        'https://a.example/"><script>',
        "https://a.example/\u202egnp",
        "https://[",
        "https://a.example/" + "x" * 3000,
    ],
)
def test_only_a_plain_web_address_is_a_link(text: str) -> None:
    assert not is_link(text)


def test_links_of_an_alert_are_named_after_their_fields() -> None:
    data = {
        "generatorURL": "http://prometheus/graph",
        "annotations": {"runbook_url": "https://wiki/r", "again": "https://wiki/r"},
        "payload": {"links": [{"href": "https://tickets/7"}], "html_url": "https://page/1"},
    }

    assert {it.title: it.url for it in links_in(data)} == {
        "source": "http://prometheus/graph",
        "runbook": "https://wiki/r",
        "href": "https://tickets/7",
        "page": "https://page/1",
    }


def test_a_report_is_a_timeline_in_which_texts_of_others_mean_nothing() -> None:
    (incident,), _ = group(HOSTILE, [event("anomaly", 0, 5, title=HOSTILE, detail=HOSTILE)])
    text = report(incident)

    assert "<script>" not in text.replace("\\<", "")
    assert "](javascript" not in text.replace("\\]", "").replace("\\(", "")
    rows = [line for line in text.splitlines() if line.startswith("| 2026")]
    assert [row.replace("\\|", "").count("|") for row in rows] == [5]
