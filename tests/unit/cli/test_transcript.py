"""Transcripts of investigations: what people see of each entry, and what they never see."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from boyd.models.investigation import (
    Asked,
    Compacted,
    Counters,
    Delta,
    Discarded,
    Ended,
    Entry,
    Result,
    Said,
    Started,
    Steered,
    ToolCall,
    ToolObservation,
    Usage,
    Waits,
    Warned,
)
from boyd.text.formatting import dollars
from boyd_cli.views.transcript import LiveTranscript, PlainTranscript, Prose, whole_blocks

NOW = datetime(2026, 1, 1, tzinfo=UTC)
USED = Counters(steps=2, tool_calls=1, usage=Usage(input_tokens=200, output_tokens=40))
LOOK = ToolCall(id="call00001", name="look", arguments='{"path": "/var", "why": "it is full"}')


def text(piece: str) -> Delta:
    """A piece of an answer."""
    return Delta(step=1, channel="text", text=piece)


def reasoning_piece(piece: str) -> Delta:
    """A piece of reasoning."""
    return Delta(step=1, channel="reasoning", text=piece)


def result(output: str = "99 %", **fields: Any) -> Result:
    """The result of `LOOK`."""
    defaults = {"time": NOW, "tool": "look", "call_id": "call00001", "status": "succeeded"}
    return Result(observation=ToolObservation(**{**defaults, "output": output, **fields}))


def final_answer(answer: str = "It is full.", **fields: Any) -> Ended:
    """An end with an answer."""
    return Ended(**{"ending": "final_answer", "text": answer, "counters": USED, **fields})


def plain(*entries: Entry | None, answers: bool = True) -> list[str]:
    """The lines of a transcript."""
    lines: list[str] = []
    with PlainTranscript(lines.append, answers=answers) as transcript:
        for entry in entries:
            transcript.show(entry)
    return lines


def live(capsys: pytest.CaptureFixture[str], entries: Sequence[Entry]) -> str:
    """Print a transcript on a terminal, and return what remains on it."""
    with LiveTranscript() as transcript:
        for entry in entries:
            transcript.show(entry)
    return capsys.readouterr().out


def render_markdown(markdown: str) -> str:
    """Markdown as a terminal gets it."""
    console = Console(width=60, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(Prose(markdown))
    return capture.get()


# Lines


def test_a_call_is_one_line_with_its_arguments_and_its_result_some_more() -> None:
    turn = Said(step=1, text="Let me look.", calls=[LOOK])
    lines = plain(turn, Started(call_id="call00001"), result("a\nb\n", duration=1400.0))

    assert lines == [
        "Let me look.",
        '→ #1 look path=/var why="it is full"',
        "  ok, 1.4 s",
        "    a",
        "    b",
    ]


def test_long_results_and_arguments_are_shortened() -> None:
    long = ToolCall(id="call00001", name="look", arguments='{"path": "%s"}' % ("x" * 500))
    lines = plain(Said(step=1, calls=[long]), result("line\n" * 20))

    assert len(lines[0]) < 100
    assert lines[0].endswith("…")
    assert lines[-1] == "    … 14 more lines"
    assert len(lines) == 9


def test_arguments_that_are_no_json_are_shown_as_they_are() -> None:
    call = ToolCall(id="call00001", name="look", arguments="{bad")
    assert plain(Said(step=1, calls=[call]), result())[0] == "→ #1 look {bad"


def test_a_result_says_what_went_wrong() -> None:
    failed_result = result(
        status="failed", exit_code=124, timed_out=True, truncated=True, total_bytes=70000
    )
    assert (
        plain(failed_result)[0]
        == "  #1 look: failed, exit code 124, timed out, 70000 bytes in total"
    )


def test_a_waiting_call_shows_how_to_approve_it() -> None:
    waits = Waits(call_id="call00001", approval_id="01234567-89ab")
    lines = plain(Said(step=1, calls=[LOOK]), Started(call_id="call00001"), waits, result())

    assert "approvals show 01234567`" in lines[1]
    assert "approvals approve 01234567`" in lines[2]
    assert lines[3] == "  #1 look: ok"


def test_instructions_and_warnings_are_shown_as_notes() -> None:
    lines = plain(
        Steered(text="You have\nasked before.", why="duplicate", strip=True),
        Warned(what="tokens", text="80 % of the tokens are used"),
    )
    assert lines == [
        "! told the model (duplicate, without tools from now on): You have asked before.",
        "! 80 % of the tokens are used",
    ]


def test_a_compaction_names_the_calls_hidden_from_the_model() -> None:
    ids = [f"call{n:05d}" for n in (1, 2, 3, 5)]
    [line] = plain(Compacted(why="full", results=ids, folded=4, before=41000, after=12000))
    assert line == (
        "! the context was full; compacted: calls #1-#3, #5, older turns summarised, "
        "41000 → 12000 characters"
    )


def test_the_end_tells_the_time_and_the_money_in_plain_numbers() -> None:
    used = USED.patched({"seconds": 83.4, "cost": 2.09e-05})
    assert plain(final_answer(counters=used))[-1] == (
        "final_answer: 2 steps, 1 tool call, 240 tokens, cost $0.000021, 1 min 23 s"
    )


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(0, "$0"), (2.09e-05, "$0.000021"), (0.02, "$0.02"), (0.125, "$0.12"), (12.5, "$12.50")],
)
def test_money_is_written_in_plain_decimals(amount: float, expected: str) -> None:
    assert dollars(amount) == expected


def test_the_answer_is_printed_once_and_how_it_ended() -> None:
    lines = plain(Asked(text="Why?"), Said(step=1, text="It is full."), final_answer())
    assert lines == ["> Why?", "It is full.", "final_answer: 2 steps, 1 tool call, 240 tokens"]


def test_an_answer_that_goes_elsewhere_is_not_among_the_notes() -> None:
    lines = plain(Said(step=1, text="It is full."), final_answer(), answers=False)
    assert lines == ["final_answer: 2 steps, 1 tool call, 240 tokens"]


def test_an_end_without_an_answer_is_named_with_its_reason() -> None:
    end = final_answer("Findings", ending="max_steps", detail="30 of 30\nsteps")
    lines = plain(Said(step=1, text="Hm."), end)
    assert lines[:2] == ["Hm.", "Findings"]
    assert lines[2].startswith("! ended by max_steps: 30 of 30 steps (")


def test_reasoning_is_marked_and_a_failed_attempt_withdrawn() -> None:
    lines = plain(
        reasoning_piece("I th"),
        reasoning_piece("ink"),
        Discarded(step=1, why="cut"),
        reasoning_piece("Again"),
    )
    assert lines == ["| I think", "! withdrawn: cut", "| Again"]


def test_a_failed_attempt_is_shown_with_its_error_unless_repeated() -> None:
    failed = Discarded(step=1, why="nobody answers")
    assert plain(failed, failed, Said(step=1, text="Here."), failed) == [
        "! attempt 1 failed: nobody answers",
        "! attempt 2 failed with the same error",
        "Here.",
        "! attempt 1 failed: nobody answers",
    ]


def test_entries_of_a_later_release_are_passed_over() -> None:
    assert plain(None) == []


@pytest.mark.parametrize("way", ["plain", "live"])
def test_nothing_from_outside_moves_the_cursor(
    way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2J\x9b1A\u202egnp.exe\rover"
    call = ToolCall(id="call00001", name=evil, arguments=evil)
    entries: list[Entry] = [
        Asked(text=evil),
        reasoning_piece(evil),
        text(evil),
        Discarded(step=1, why=evil),
        Said(step=1, text=evil, calls=[call]),
        Started(call_id="call00001"),
        result(evil, tool=evil),
        Steered(text=evil, why=evil),
        Warned(what="x", text=evil),
        final_answer(f"{evil} &#27;[2J &#8238;", ending="error", detail=evil),
    ]
    text_shown = "\n".join(plain(*entries)) if way == "plain" else live(capsys, entries)

    assert [c for c in text_shown if not c.isprintable() and c != "\n"] == []


def test_colours_of_a_tool_leave_nothing_behind() -> None:
    assert plain(result("\x1b[1;31mred\x1b[0m\x1b]0;title\x07\tend"))[1] == "    red    end"


# On a terminal


def test_an_answer_is_printed_once_below_a_line_that_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pieces = ["# Fou", "nd\n\nIt is **fu", "ll**.\n\n- a\n", "- b"]
    answer = "".join(pieces)
    printed = live(capsys, [*map(text, pieces), Said(step=1, text=answer), final_answer(answer)])

    assert [line.strip(" ─") for line in printed.splitlines() if line.strip()] == [
        "Answer",
        "Found",
        "It is full.",
        "• a",
        "• b",
        "final_answer: 2 steps, 1 tool call, 240 tokens",
    ]


def test_text_before_a_tool_call_is_printed_once_above_the_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    entries: list[Entry] = [
        text("Let me look."),
        Said(step=1, text="Let me look.", calls=[LOOK]),
        Started(call_id="call00001"),
        result(),
        Said(step=2, text="It is full."),
        final_answer(),
    ]
    printed = live(capsys, entries)

    order = [printed.index(part) for part in ("Let me look.", "→ #1", "Answer", "It is full.")]
    assert order == sorted(order)
    assert printed.count("Let me look.") == printed.count("It is full.") == 1


def test_a_turn_of_which_no_piece_came_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert "It is full." in live(capsys, [Said(step=1, text="It is full."), final_answer()])


def test_pieces_of_a_turn_that_failed_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    printed = live(
        capsys,
        [
            text("Wrong.\n\nAnd this half is not even whole"),
            Discarded(step=1, why="the connection was cut"),
            text("Right."),
            Said(step=1, text="Right."),
            final_answer("Right."),
        ],
    )
    assert "Wrong." not in printed
    assert printed.index("withdrawn: the connection was cut") < printed.index("Right.")
    assert printed.count("Right.") == 1


def test_thoughts_that_were_printed_are_withdrawn_visibly(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = live(
        capsys,
        [reasoning_piece("Hm.\n\nSo\n"), Discarded(step=1, why="it was cut"), final_answer()],
    )
    assert printed.index("Hm.") < printed.index("ignore the reasoning above")


def test_an_answer_that_was_not_streamed_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    printed = live(
        capsys, [Said(step=1, text="Hm."), final_answer("The digest", ending="doom_loop")]
    )
    assert printed.index("Hm.") < printed.index("Findings") < printed.index("The digest")
    assert "! ended by doom_loop" in printed


# Markdown


def test_links_are_written_out_and_lead_nowhere_else() -> None:
    html = render_markdown("See [your bank](http://evil.example/x).")
    assert "http://evil.example/x" in html
    assert "\x1b]8" not in html


def test_entities_become_no_control_characters() -> None:
    assert "\u202e" not in render_markdown("a &#8238; b &#x9b; c")


@pytest.mark.parametrize(
    ("markdown", "whole"),
    [
        ("one", ""),
        ("one\n\n", ""),
        ("one\n\ntwo\n", "one\n\n"),
        ("one\n\n1", ""),
        ("```\na\n\nb\n", ""),
        ("```\na\n\nb\n```\n\nafter\n", "```\na\n\nb\n```\n\n"),
        ("~~~\n```\n\nb\n~~~\n\nafter\n", "~~~\n```\n\nb\n~~~\n\n"),
        ("- a\n\n- b\n\n  more\n", ""),
        ("1. a\n\n2. b\n\nafter it\n", "1. a\n\n2. b\n\n"),
        ("a\n\nb\n\nc\n\nd\n", "a\n\nb\n\nc\n\n"),
    ],
)
def test_blocks_are_whole_when_nothing_can_change_them(markdown: str, whole: str) -> None:
    assert markdown[: whole_blocks(markdown)] == whole
