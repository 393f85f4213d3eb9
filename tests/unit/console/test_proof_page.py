"""The latest published proof: scores, plot and labels, also as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from api_kit import Site
from boyd.models import utc_now
from boyd.models.situation import NumberSeries, SeriesPoint
from boyd_proof.proof_report import (
    ActionRuns,
    AgentProof,
    Alarm,
    DetectionScores,
    Label,
    LabelDetection,
    ProofReport,
    PublishedProof,
    Recommendation,
    RecordGap,
    ScoredLabel,
    Sweep,
    SweepPoint,
)
from boyd_proof.prove_command import REPORT
from console_kit import Browser

HERE = "/console/agents/desk/proof"
HOSTILE = "<img src=x onerror=alert(1)>"
START = datetime(2026, 11, 1, tzinfo=UTC)


def day(number: float) -> datetime:
    return START + timedelta(days=number)


SCORES = DetectionScores(
    labels=2,
    detected=1,
    alarms=3,
    true_alarms=1,
    weeks=4.0,
    precision=1 / 3,
    recall=0.5,
    f1=0.4,
    delay_median=40.0,
    delay_p90=40.0,
    false_alarms_per_week=0.5,
)
NOTHING = DetectionScores(labels=0, detected=0, alarms=0, true_alarms=0, weeks=4.0)
BEST = Recommendation(
    value=80,
    low=75,
    high=85,
    split=day(14),
    chosen_f1=0.9,
    held_out_f1=0.8,
    held_out_low=0.7,
    held_out_high=0.9,
    present=70,
)


def proof(sweep: Sweep | None = None, scores: DetectionScores = SCORES) -> ProofReport:
    alarms = [
        Alarm(start=day(2), end=day(2.1), verdict="true"),
        Alarm(start=day(9), end=day(9.5)),
        Alarm(start=day(20), end=day(20.1), verdict="uncounted"),
    ]
    agent = AgentProof(
        name="present",
        build="b1",
        iterations=1000,
        unknown_detections=3,
        reasons={HOSTILE: 3},
        alarm_share=0.01,
        scores=scores,
        actions=[ActionRuns(action=HOSTILE, alone=3, same=2, outcomes={"effective": 2})],
        alarms=alarms,
    )
    labels = [
        ScoredLabel(
            label=Label(start=day(2), end=day(3), target=HOSTILE),
            agents={"present": LabelDetection(detection="detected", delay=40.0)},
        ),
        ScoredLabel(
            label=Label(start=day(12)),
            agents={"present": LabelDetection(detection="missed")},
        ),
        ScoredLabel(label=Label(start=day(-9), end=day(-8)), state="outside"),
    ]
    points = [SeriesPoint(at=day(n), low=n, mean=n + 1, high=n + 2) for n in range(28)]
    return ProofReport(
        agent_id="desk",
        since=START,
        until=day(28),
        iterations=1000,
        weeks=4.0,
        gap_after=60.0,
        gaps=[RecordGap(start=day(5), end=day(6))],
        gap_count=1,
        gap_time=86_400.0,
        tolerance=300.0,
        labels=labels,
        agents=[agent],
        series=[NumberSeries(name=HOSTILE, points=points)],
        sweep=sweep,
    )


def publish(desk: Site, report: ProofReport) -> None:
    document = PublishedProof(report=report, by="cli:ann", at=utc_now())
    desk.lab.store.latest_report(REPORT, PublishedProof).publish(document)


def test_without_a_proof_the_page_says_how_to_make_one(alice: Browser, desk: Site) -> None:
    page = alice.get(HERE)

    assert "No proof of the last 30 days was published." in page.text
    assert "boyd prove --since 30d --labels incidents.csv --publish" in page.text


def test_scores_labels_and_reasons_are_text_beside_the_plot(alice: Browser, desk: Site) -> None:
    publish(desk, proof())
    page = alice.get(HERE)

    for text in ("0.33 (1 of 3)", "0.50 (1 of 2)", "after 40 s", "missed", "outside the record"):
        assert text in page.text
    assert "3 iterations" in page.text
    assert "cli:ann" in page.text
    assert HOSTILE in page.text
    assert HOSTILE not in page.source


def test_every_chart_has_a_text_in_its_place(alice: Browser, desk: Site) -> None:
    points = [SweepPoint(value=value, whole=SCORES) for value in (70.0, 75.0, 80.0, 85.0)]
    publish(desk, proof(Sweep(option="rules:busy.above", points=points, recommendation=BEST)))
    source = alice.get(HERE).source

    charts = source.split("<svg ")[1:]
    plots = [chart for chart in charts if "preserveAspectRatio" in chart.partition(">")[0]]
    assert len(plots) == 4
    assert all('role="img"' in chart and "aria-label=" in chart for chart in plots)
    assert "style=" not in source.partition("<main")[2]


def test_a_sweep_shows_what_is_recommended(alice: Browser, desk: Site) -> None:
    points = [SweepPoint(value=value, whole=SCORES) for value in (70.0, 75.0, 80.0, 85.0)]
    publish(desk, proof(Sweep(option="rules:busy.above", points=points, recommendation=BEST)))
    text = alice.get(HERE).text

    assert "Recommended: 80." in text
    assert "The data does not tell the values from 75 to 85 apart." in text
    assert "recommended" in text


def test_a_sweep_without_a_recommendation_says_why(alice: Browser, desk: Site) -> None:
    points = [SweepPoint(value=value, whole=NOTHING) for value in (1.0, 2.0)]
    publish(desk, proof(Sweep(option="p:o", points=points, refusal="too few labels"), NOTHING))
    text = alice.get(HERE).text

    assert "No value is recommended: too few labels" in text
    assert "no alarms" in text
    assert "no labels" in text


@pytest.mark.parametrize("text", ['{"report": 1}', "{"])
def test_a_proof_of_a_later_release_is_ignored(alice: Browser, desk: Site, text: str) -> None:
    desk.lab.client.set("boyd:{desk}:proof", text)

    assert "No proof of the last 30 days was published." in alice.get(HERE).text
