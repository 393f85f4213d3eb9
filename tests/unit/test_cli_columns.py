"""Tables on terminals: what gives way where there is no room for all of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rich.console import Console

from boyd.cli import approval_view, output

WHY = "The disk of the build host is nearly full and nothing has been tidied up since spring. " * 9
APPROVAL = [
    "1a2b3c4d",
    "scratch:clean",
    "medium",
    WHY,
    "ann@example.com",
    "12x",
    "0/1",
    "59 min 12 s",
]


def printed(
    header: Sequence[str], row: Sequence[str], wide: int, cut: Sequence[str] = ()
) -> list[str]:
    """The lines of a table on a terminal of that width."""
    console = Console(width=wide, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(output.fitted(header, [row], cut, wide))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize("wide", [60, 80, 100, 200])
def test_ids_and_actions_stay_whole_and_long_texts_are_cut_to_one_line(wide: int) -> None:
    lines = printed(approval_view.HEADER, APPROVAL, wide, approval_view.CUT)
    assert max(map(len, lines)) <= wide
    assert lines[1].startswith("1a2b3c4d  scratch:clean  ")
    assert "…" in lines[1]
    assert sum("disk" in line or "The" in line for line in lines) <= 1
    assert len(lines) <= 2 + 3  # who has asked, and until when, may be folded


@pytest.mark.parametrize("wide", [60, 80])
def test_a_status_is_never_folded(wide: int) -> None:
    header = ["id", "status", "steps", "age", "source", "asked by", "question"]
    row = ["1a2b3c4d", "final_synthesis", "12", "3 h 12 min ago", "api", "ann@example.com", WHY]
    lines = printed(header, row, wide, ["question"])
    assert max(map(len, lines)) <= wide
    assert lines[1].startswith("1a2b3c4d  final_synthesis  12")


def test_what_is_not_to_be_cut_is_folded_and_nothing_of_it_is_lost() -> None:
    lines = printed(["", "check", "found"], ["error", "redis", WHY], 60)
    assert " ".join(line[14:].strip() for line in lines[1:]).split() == WHY.split()


def test_a_table_that_fits_is_as_wide_as_what_is_in_it() -> None:
    assert printed(["id", "why"], ["1a2b3c4d", "short"], 80, ["why"])[1] == "1a2b3c4d  short"


def test_an_id_stays_whole_where_there_is_room_for_little_else() -> None:
    header = ["id", "action", "why", "asked by"]
    lines = printed(header, ["1a2b3c4d", "scratch:clean", WHY, "ann"], 20, ["why"])
    assert lines[1].startswith("1a2b3c4d ")
    assert max(map(len, lines)) <= 20
