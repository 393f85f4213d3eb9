"""Lines for people: events, iterations, and what actions came to."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from boyd.models import (
    ActionResult,
    DecisionTrace,
    Event,
    HeldDecision,
    LoopResult,
    Observation,
    PluginReads,
    Read,
    Situation,
    no_op,
)
from boyd_cli import output
from boyd_cli.commands.status_command import is_repeated
from boyd_cli.views import iteration_view
from boyd_cli.views.event_view import plain_line
from boyd_cli.views.iteration_view import read_rows

HIDDEN = "a\u202eb\u200bc\x9b2J\u2028d"
ID = "c32e3dd8-08f1-5aed-9b0d-90a5d4413809"


def event(kind: str, **data: object) -> Event:
    """An event of now."""
    return Event.model_validate({"id": "1-0", "kind": kind, "at": NOW, "data": data})


NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(("form", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_data_escape_what_nobody_sees(
    form: str, parse: Callable[[str], object], capsys: pytest.CaptureFixture[str]
) -> None:
    output.print_data(form, {"hidden": HIDDEN})
    document = capsys.readouterr().out

    assert document.replace("\n", "").isprintable()
    assert parse(document) == {"hidden": HIDDEN}


def test_equal_reads_of_an_iteration_are_one_line_with_their_number() -> None:
    state = Read(of="state", key="seen", value=1)
    other = Read(of="state", key="seen", value=2)
    reads = [
        PluginReads(by="p.on_decide", phase="decide", clock=[NOW], reads=[state], omitted=2),
        PluginReads(by="q", phase="decide", reads=[state]),
        PluginReads(by="p.on_decide", phase="decide", clock=[NOW], reads=[state], omitted=1),
        PluginReads(by="p.on_decide", phase="act", reads=[other, state]),
    ]

    assert list(read_rows(reads)) == [
        ("p.on_decide", f"clock: {output.date(NOW)} (2 times)"),
        ("p.on_decide", "state seen: 1 (3 times)"),
        ("q", "state seen: 1"),
        ("p.on_decide", "state seen: 2"),
        ("p.on_decide", "and 3 more, which are not kept"),
    ]


def past(summary: str = "All is well", action: str | None = None) -> LoopResult:
    """An iteration that saw seven things."""
    observations_made = [Observation(source="p", type="state", data={}) for _ in range(7)]
    results = [ActionResult(action=action, success=True, duration=12)] if action else []
    return LoopResult(
        id="1",
        agent_id="watch",
        iteration=12,
        trigger="beat",
        success=True,
        started_at=NOW - timedelta(seconds=1),
        ended_at=NOW,
        duration=123,
        observations=observations_made,
        situation=Situation(summary=summary, priority="low", confidence=1.0, assessments=[]),
        decision=no_op("nothing to do"),
        action_results=results,
    )


LONG = "The endpoint is healthy; 1 host is within its limits; nothing else was to be found here"


@pytest.mark.parametrize("wide", [40, 60, 80, 120])
@pytest.mark.parametrize("action", [None, "http-monitor:restartService"])
def test_a_line_of_an_iteration_fits_the_terminal(wide: int, action: str | None) -> None:
    line = iteration_view.iteration_line(past(LONG, action), wide)
    assert len(line) <= wide
    if wide >= 80:
        assert line.endswith(f"→ {action} ok" if action else "→ no-op")


def test_a_narrow_iteration_line_keeps_the_outcome() -> None:
    line = iteration_view.iteration_line(past(LONG, "http-monitor:restartService"), 80)
    assert "observations" not in line
    assert line.endswith("→ http-monitor:restartService ok")


def test_a_narrow_iteration_line_keeps_the_approval_that_an_action_waits_for() -> None:
    result = past(LONG, None)
    waits = ActionResult(
        action="http-monitor:restartService", success=False, waits_for=ID, duration=0
    )
    line = iteration_view.iteration_line(result.model_copy(update={"action_results": [waits]}), 80)
    assert len(line) <= 80
    assert line.endswith("→ http-monitor:restartService sent for approval c32e3dd8")


def test_a_no_op_because_of_a_hold_names_the_action_that_is_held() -> None:
    held = HeldDecision(strategy="p:s", action="p:restart", target="web", reason="it had no effect")
    trace = DecisionTrace(held=[held])
    result = past(LONG, None).model_copy(update={"trace": trace})
    assert iteration_view.outcome(result) == "no-op: p:restart is not repeated"


def test_lines_of_events_are_aligned_alike() -> None:
    lines = [
        plain_line("watch", event("phase", iteration=22, phase="observe")),
        plain_line("watch", event("approval.pending", approval=ID, title="a  b")),
    ]
    clock = output.clock(NOW)
    assert lines[0] == f"{clock}  watch #22  observe"
    assert lines[1] == f'{clock}  watch  approval c32e3dd8 pending title="a b"'


def test_an_event_of_an_execution_names_it_as_commands_take_it() -> None:
    verified = event("execution.verified", execution=f"approval:{ID}", verdict="no effect")
    line = f'{output.clock(NOW)}  watch  execution approval:c32e3dd8 verified verdict="no effect"'
    assert plain_line("watch", verified) == line


def test_a_call_has_ended_whether_or_not_it_executed_something() -> None:
    line = f"{output.clock(NOW)}  watch  call c32e3dd8 ended state=succeeded"
    assert plain_line("watch", event("call.executed", call=ID, state="succeeded")) == line


def test_an_approval_that_is_proposed_again_says_nothing_new() -> None:
    assert is_repeated(event("approval.seen", approval="c32e3dd8"))
    assert not is_repeated(event("approval.pending", approval="c32e3dd8"))


def test_a_refused_action_has_no_duration() -> None:
    refused = ActionResult(action="p:do", success=False, error="over its budget", duration=0)
    assert iteration_view.action_duration(refused) == ""
    assert iteration_view.action_duration(refused.model_copy(update={"duration": 31})) == "31 ms"
    assert iteration_view.action_duration(refused.model_copy(update={"success": True})) == "0 ms"


def test_no_color_leaves_no_style_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    assert output.paint("failed", "red") == "\x1b[31mfailed\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.paint("failed", "red") == "failed"
    console = output.console()
    with console.capture() as captured:
        console.print("[dim]calm[/dim]", end="")
    assert captured.get() == "calm"


def test_an_unknown_outcome_is_not_repeated_in_the_error_row() -> None:
    error = "Outcome unknown: worker a was lost while executing it"
    lost = ActionResult(action="p:do", success=False, duration=0, error=error, unknown=True)

    text = "p:do outcome unknown: worker a was lost while executing it"
    assert iteration_view.action_outcome(lost) == text
    assert iteration_view.error_row(lost) == ("error", "")


def test_the_outcome_of_an_undo_names_what_was_done() -> None:
    done = ActionResult(action="p:do", success=True, duration=1)

    outcome = iteration_view.action_outcome(done, "undo of p:do (loop:7)")
    assert outcome == "undo of p:do (loop:7) ok"
