"""Tables on terminals: one line for each row, and which columns give way where there is no room."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from boyd_cli import output
from boyd_cli.commands import (
    action_commands,
    approval_commands,
    control_commands,
    history_command,
    investigation_commands,
    key_commands,
    plugin_commands,
    run_commands,
    status_command,
)
from boyd_cli.output import Column, layout, prose, sentence, whole
from boyd_cli.views import approval_view
from boyd_goals.cli import goal_views

ROOT = Path(__file__).parents[3]
MAY = "approve k8s:scale on web-*; run restart:* on web-*"
WHY = "The disk of the build host is nearly full and nothing has been tidied up since spring. " * 9
BY = "ann@operations.example.com"
APPROVAL = ["1a2b3c4d", "scratch:clean", "medium", WHY, BY, "12x", "0/1", "119 min"]
END = "approved by ann@operations.example.com 3 min ago, scratch:clean ok"

#: Of each list: its columns, a row, and what must be whole in it however narrow the terminal is.
LISTS: dict[str, tuple[Sequence[Column], list[str], list[str]]] = {
    "approvals": (
        approval_view.COLUMNS,
        APPROVAL,
        ["1a2b3c4d", "scratch:clean", "medium", "119 min"],
    ),
    "approvals --all": (
        approval_view.COLUMNS_OF_ALL,
        [*APPROVAL[:-1], END],
        ["1a2b3c4d", "scratch:clean", "medium"],
    ),
    "history": (
        history_command.COLUMNS,
        ["1284", "Nov 21 23:58", "failed", "10 min 50 s", "71", "beat", WHY, "web:restart ok"],
        ["1284", "Nov 21 23:58", "failed", "web:restart ok"],
    ),
    "executions": (
        action_commands.EXECUTION_COLUMNS,
        [
            *("call:c7cb2ff9", "Nov 21 23:58", "scratch:clean"),
            *("succeeded", "cannot tell", "web-1", "10 min 50 s", "host-b", BY),
        ],
        ["call:c7cb2ff9", "scratch:clean", "succeeded", "cannot tell"],
    ),
    "holds": (
        action_commands.HOLD_COLUMNS,
        [
            *("scratch:clean", "web-1", "no effect", "call:c7cb2ff9-8bdd-5c21-8d67-f943979f0de7"),
            *("Nov 21 23:58", "disk-full", WHY),
        ],
        ["scratch:clean", "web-1", "no effect"],
    ),
    "track records": (
        approval_commands.COLUMNS,
        [
            *("scratch:clean", WHY, "9 of 10", "70 %", "3 of 7", "not shown", "14:05:10"),
            *("web-*", "0.12", "0.30", "c7cb2ff9", WHY),
        ],
        ["scratch:clean", "9 of 10", "14:05:10"],
    ),
    "runs": (
        run_commands.COLUMNS,
        ["1a2b3c4d", "investigating", "critical", "119 min ago", "cli", BY, WHY],
        ["1a2b3c4d", "investigating", "119 min ago"],
    ),
    "investigations": (
        investigation_commands.COLUMNS,
        [
            *("1a2b3c4d", "final_synthesis", "119 min", "123456", "$0.12", "47 h ago"),
            *("12", "api", BY, WHY),
        ],
        ["1a2b3c4d", "final_synthesis"],
    ),
    "agents": (
        control_commands.COLUMNS,
        [
            *("warehouse", "waits for you", "119 min ago", WHY, "2 runs, 12 approvals"),
            *("observe", "1284", "continuous, every 10 s", "3", WHY),
        ],
        ["warehouse", "waits for you", "119 min ago"],
    ),
    "actions": (
        action_commands.COLUMNS,
        ["web:restart", "high", "approval-required", "yes", "no", "service, [timeout]", WHY],
        ["web:restart", "high", "approval-required"],
    ),
    "keys": (
        key_commands.COLUMNS,
        [
            "1a2b3c4d5e6f",
            "laptop",
            BY,
            "read, approvals, runs",
            "ops",
            "all",
            MAY,
            "14:05:10",
            "never",
        ],
        ["1a2b3c4d5e6f"],
    ),
    "observers": (
        status_command.OBSERVED,
        ["http-monitor:web", "failed 12 in a row, backs off 45 s", "119 min ago", WHY],
        ["http-monitor:web", "failed 12 in", "119 min ago"],
    ),
    "workers": (
        status_command.WORKERS,
        ["worker", "host-a.13289.61f5", "119 min ago", "watch", "loop, observe, host", "ok"],
        ["worker", "host-a.13289.61f5", "ok"],
    ),
    "goals": (
        goal_views.GOALS,
        ["goal-12", "Active, waits for an answer", "10", "4", "goal-3", WHY],
        ["goal-12"],
    ),
}


def print_table(columns: Sequence[Column | str], row: Sequence[str], wide: int) -> list[str]:
    """The lines of a table on a terminal of that width."""
    console = Console(width=wide, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(output.fit_table(columns, [row], wide))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize("wide", [60, 80, 200])
@pytest.mark.parametrize("name", LISTS)
def test_a_list_has_one_line_for_each_row_with_what_matters_whole(name: str, wide: int) -> None:
    columns, row, must = LISTS[name]
    head, *lines = print_table(columns, row, wide)
    assert len(lines) == 1
    assert len(lines[0]) <= wide
    assert [text for text in must if text not in lines[0]] == []
    assert "…" not in head
    assert set(head.replace("TIME LEFT OR END", "").split()) <= {
        word.upper() for column in columns for word in column.name.split()
    }


def test_option_and_action_descriptions_are_not_cut_on_a_narrow_terminal() -> None:
    for columns, row in (
        (plugin_commands.OPTIONS, ["nginx.upstreams", "table of path", "{}", WHY]),
        (plugin_commands.ACTIONS, ["loadbalancer:set-weight", WHY]),
    ):
        _, *lines = print_table(columns, row, 80)
        assert row[0] in lines[0]
        assert set(WHY.split()) <= {word for line in lines for word in line.split()}


@pytest.mark.parametrize("name", LISTS)
def test_a_wide_terminal_shows_every_column(name: str) -> None:
    columns, row, _ = LISTS[name]
    assert len(layout(columns, [row], 200)) == len(columns)


def test_the_text_of_an_approval_gets_the_room_that_is_left() -> None:
    _, line = print_table(approval_view.COLUMNS, APPROVAL, 200)
    assert len(line) > 190
    _, line = print_table(approval_view.COLUMNS, APPROVAL, 80)
    assert "The disk of the" in line


def test_the_approval_an_action_waits_for_is_not_cut_in_the_history() -> None:
    waits = "scratch:clean sent for approval c32e3dd8"
    row = ["12", "23:58:10", "ok", "230 ms", "7", "beat", WHY, waits]
    head, line = print_table(history_command.COLUMNS, row, 80)
    assert line.endswith(waits)
    assert "TOOK" in head  # it has room again, now that a wide column is left out


def test_less_important_columns_are_left_out_of_a_narrow_terminal() -> None:
    heads = {
        wide: print_table(approval_view.COLUMNS, APPROVAL, wide)[0].split() for wide in (60, 80)
    }
    assert heads[80] == ["ID", "ACTION", "RISK", "WHY", "ASKED", "BY", "VOTES", "TIME", "LEFT"]
    assert heads[60] == ["ID", "ACTION", "RISK", "WHY", "TIME", "LEFT"]


def test_the_guide_says_which_columns_are_left_out_and_in_which_order() -> None:
    columns_by_list = {
        **{name: columns for name, (columns, _, _) in LISTS.items()},
        "facts": goal_views.FACTS,
        "questions": goal_views.QUESTIONS,
    }
    names = {
        "approvals": "approvals list",
        "history": "history",
        "runs": "runs list",
        "investigations": "investigations list",
        "agents": "agents",
        "keys": "keys list",
        "actions": "actions list",
        "executions": "actions executions",
        "holds": "actions holds",
        "track records": "autonomy list",
        "workers": "status",
        "goals": "goals list",
        "facts": "graph show",
        "questions": "questions list",
    }
    guide = (ROOT / "docs" / "cli.md").read_text()
    for name, command in names.items():
        going = sorted(
            (column for column in columns_by_list[name] if column.drop),
            key=lambda column: -column.drop,
        )
        where = "of workers: " if name == "workers" else ""
        assert f"| `{command}` | {where}{', '.join(column.name for column in going)} |" in guide


def test_a_folded_column_loses_no_words() -> None:
    lines = print_table(["", "check", prose("found")], ["error", "redis", WHY], 60)
    assert " ".join(line[14:].strip() for line in lines[1:]).split() == WHY.split()


def test_a_table_that_fits_is_as_wide_as_what_is_in_it() -> None:
    assert print_table(["id", sentence("why")], ["1a2b3c4d", "short"], 80)[1] == "1a2b3c4d  short"


def test_an_id_stays_whole_where_there_is_room_for_little_else() -> None:
    columns = [whole("id"), whole("action"), sentence("why"), whole("asked by")]
    lines = print_table(columns, ["1a2b3c4d", "scratch:clean", WHY, "ann"], 20)
    assert lines[1].startswith("1a2b3c4d ")
    assert max(map(len, lines)) <= 20


def test_in_a_pipe_a_long_text_is_whole_but_widens_its_own_row_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    columns: list[Column | str] = ["id", sentence("why"), "by"]
    output.print_table(columns, [["1", WHY, "ann"], ["2", "the disk is full", "bo"]])
    head, long, short = capsys.readouterr().out.splitlines()
    assert long == f"1   {WHY.strip()}  ann"
    assert short == "2   the disk is full  bo"
    assert head.index("BY") == short.index("bo")


def test_in_a_pipe_columns_of_long_ids_align(capsys: pytest.CaptureFixture[str]) -> None:
    ids = ["compensation:approval:c32e3dd8-08f1-5aed-9b0d-90a5d4413809:drain", "loop:1.6a95fcdb9"]
    output.print_table([whole("procedure"), "state"], [[id, "stopped"] for id in ids])
    head, *lines = capsys.readouterr().out.splitlines()
    assert {line.index("stopped") for line in lines} == {head.index("STATE")}


def test_times_in_columns_are_short() -> None:
    texts = [output.short_seconds(number) for number in (1.9, 119, 120, 3540, 7199, 7200, 172800)]
    assert texts == ["1 s", "119 s", "2 min", "59 min", "119 min", "2 h", "2 d"]
    now = datetime(2026, 3, 4, 15, 30, tzinfo=UTC)
    assert output.short_age(now - timedelta(seconds=90), now) == "90 s ago"
    assert output.short_age(now, now) == "just now"
    assert output.short_age(None, now) == "never"


@pytest.mark.parametrize(
    ("ago", "expected"),
    [
        (timedelta(hours=1), "%H:%M:%S"),
        (timedelta(days=2), "%b %d %H:%M"),
        (timedelta(days=400), "%Y-%m-%d"),
    ],
)
def test_a_date_in_a_column_says_no_more_than_needed(
    monkeypatch: pytest.MonkeyPatch, ago: timedelta, expected: str
) -> None:
    now = datetime(2026, 3, 4, 12).astimezone()
    moment = now - ago
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    assert output.short_date(moment, now) == moment.strftime(expected)
    monkeypatch.setattr(output, "is_terminal", lambda: False)
    assert output.short_date(moment, now) == moment.astimezone().isoformat(" ")


@pytest.mark.parametrize(
    "columns", [action_commands.EXECUTION_COLUMNS, action_commands.PROCEDURE_COLUMNS]
)
def test_long_ids_that_differ_at_their_ends_look_different(columns: Sequence[Column]) -> None:
    place = next(n for n, column in enumerate(columns) if column.kind == "id")
    ids = [
        f"compensation:approval:{approval}:drain{n}"
        for approval in ("1a2b3c4d", "5e6f7a8b")
        for n in "12"
    ]
    rows = [["x" * 20] * len(columns) for _ in ids]
    for row, id in zip(rows, ids, strict=True):
        row[place] = id
    table = output.fit_table(columns, rows, 80)
    cells = {str(cell) for column in table.columns for cell in column.cells if "…" in str(cell)}

    assert len([cell for cell in cells if cell.startswith("comp")]) == len(ids)
