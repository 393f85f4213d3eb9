"""The tables of `boyd prove` on terminals."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from boyd_cli import output
from boyd_proof.proof_report import (
    ActionRuns,
    AgentProof,
    DetectionScores,
    Label,
    LabelDetection,
    ProofReport,
    Recommendation,
    ScoredLabel,
    Sweep,
    SweepPoint,
)
from boyd_proof.proof_view import show_proof
from boyd_proof.timeline import WEEK

START = datetime(2026, 11, 1, tzinfo=UTC)
SCORES = DetectionScores(
    labels=120,
    detected=110,
    alarms=1300,
    true_alarms=1100,
    weeks=4.0,
    precision=0.85,
    recall=0.92,
    f1=0.88,
    delay_median=205.0,
    delay_p90=1405.0,
    false_alarms_per_week=50.0,
    pages=8,
    pages_per_week=2.0,
)
#: The first words of the tables; the other lines are sentences, which a terminal wraps.
TABLES = ("precision", "recall", "time", "shop:restart", "2026-", "70", "VALUE", "ACTION", "START")


def report() -> ProofReport:
    names = ("recorded", "present", "changed")
    missed = {name: LabelDetection(detection="missed") for name in names}
    action = ActionRuns(action="shop:restart-workers", alone=12345, same=1, outcomes={"worse": 1})
    best = Recommendation(
        value=70.0,
        low=70.0,
        high=75.0,
        split=START + timedelta(days=14),
        chosen_f1=0.9,
        held_out_f1=0.8,
        held_out_low=0.7,
        held_out_high=0.9,
    )
    points = [SweepPoint(value=value, whole=SCORES) for value in (70.0, 75.0)]
    return ProofReport(
        agent_id="shop",
        since=START,
        until=START + timedelta(days=28),
        iterations=43_200,
        weeks=4.0,
        gap_after=60.0,
        tolerance=300.0,
        labels=[ScoredLabel(label=Label(start=START, target="web-*"), agents=missed)],
        agents=[
            AgentProof(name=name, iterations=43_200, scores=SCORES, actions=[action])
            for name in names
        ],
        sweep=Sweep(option="rules:busy.above", points=points, recommendation=best),
    )


@pytest.mark.parametrize("columns", [80, 200])
def test_the_tables_fit_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    show_proof(report())
    lines = [output.clean(line) for line in capsys.readouterr().out.splitlines()]
    rows = [line for line in lines if line.strip().startswith(TABLES)]

    assert len(rows) > 10
    assert max(len(row.rstrip()) for row in rows) <= columns


def test_ten_minutes_are_not_shown_as_a_week(capsys: pytest.CaptureFixture[str]) -> None:
    short = SCORES.patched({"weeks": 600 / WEEK})
    agent = AgentProof(name="present", iterations=11, scores=short)
    show_proof(report().patched({"agents": [agent], "weeks": short.weeks, "sweep": None}))
    output_text = capsys.readouterr().out

    assert ", 10 min, no gaps\n" in output_text
    assert re.search(r"false alarms a week +200 in all *\n", output_text)
    assert re.search(r"pages a week +8 in all *\n", output_text)


def test_a_pipe_gets_the_tables_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    show_proof(report())
    text = capsys.readouterr().out

    assert "0.85 (1100 of 1300)" in text
    assert "shop:restart-workers" in text
    assert "recommended" in text
    assert "may be as good" in text
