"""Tool calls that a server has passed on as text."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd.llm.reply_text import find_text_calls
from boyd.models.investigation import Ended, Said, Steered, Warned
from boyd.store.model_usage import read_totals
from boyd.testing.model_server import say
from model_kit import scene

KNOWN = {"look", "note"}
LOOK = ("look", {"word": "a"})
HERMES = '<tool_call>\n{"name": "look", "arguments": {"word": "a"}}\n</tool_call>'


@pytest.mark.parametrize(
    "text",
    [
        HERMES,
        f"Let me look.\n\n{HERMES}",
        f"{HERMES}<|im_end|>",
        '<tool_call>{"name": "look", "arguments": {"word": "a"}}',
        '<tool_call>{"name": "look", "arguments": "{\\"word\\": \\"a\\"}"}</tool_call>',
        '[TOOL_CALLS] [{"name": "look", "arguments": {"word": "a"}}]',
        '[TOOL_CALLS][{"name": "look", "arguments": {"word": "a"}, "id": "abcdef123"}]</s>',
        '[TOOL_CALLS]look[ARGS]{"word": "a"}',
        '[TOOL_CALLS]look[CALL_ID]abcdef123[ARGS]{"word": "a"}',
        '[TOOL_CALLS]look{"word": "a"}',
        '<|python_tag|>{"name": "look", "parameters": {"word": "a"}}<|eom_id|>',
        '<|python_tag|>{"type": "function", "name": "look", "parameters": {"word": "a"}}',
        '{"name": "look", "parameters": {"word": "a"}}',
        '[{"name": "look", "arguments": {"word": "a"}}]',
        '```json\n{"name": "look", "arguments": {"word": "a"}}\n```',
        '```\n{"name": "look", "arguments": {"word": "a"}}\n```\n',
    ],
)
def test_a_call_is_read_in_the_ways_of_models(text: str) -> None:
    calls_found = find_text_calls(text, KNOWN)

    assert calls_found is not None
    assert list(calls_found.calls) == [LOOK]


def test_text_before_a_call_is_kept() -> None:
    calls = find_text_calls(f"Let me look.\n{HERMES}", KNOWN)

    assert calls is not None
    assert calls.before == "Let me look."


@pytest.mark.parametrize(
    "text",
    [
        f"{HERMES}\n{HERMES}",
        (
            '[TOOL_CALLS] [{"name":"look","arguments":{"word":"a"}},'
            '{"name":"look","arguments":{"word":"a"}}]'
        ),
        (
            '<|python_tag|>{"name":"look","parameters":{"word":"a"}};'
            ' {"name":"look","parameters":{"word":"a"}}'
        ),
        '[TOOL_CALLS]look[ARGS]{"word":"a"}[TOOL_CALLS]look[ARGS]{"word":"a"}',
    ],
)
def test_several_calls_are_read_in_their_order(text: str) -> None:
    calls_found = find_text_calls(text, KNOWN)

    assert calls_found is not None
    assert list(calls_found.calls) == [LOOK, LOOK]


@pytest.mark.parametrize(
    "text",
    [
        "It was the disk.",
        f"The server printed `{HERMES.replace(chr(10), '')}` and went on.",
        f"A call looks like this:\n\n```\n{HERMES}\n```\n\nIt was the disk.",
        f"A call looks like this:\n\n~~~\n{HERMES}\n~~~",
        'The model wrote <tool_call>{"name": "look", "arguments": {}}</tool_call> and stopped.',
        '{"cause": "disk", "name": "web-1"}',
        '{"name": "reboot", "arguments": {}}',
        '{"name": "look", "arguments": {}, "cause": "disk"}',
        '{"name": "look"}',
        "[1, 2]",
        "{",
        "",
    ],
)
def test_text_that_resembles_a_call_stays_text(text: str) -> None:
    assert find_text_calls(text, KNOWN) is None


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "look", "arguments": {"word": </tool_call>',
        '<tool_call>{"name": "reboot", "arguments": {}}</tool_call>',
        f"{HERMES}\nI wait for the result.",
        f"Let me look: {HERMES}",
        '<|python_tag|>look.call(word="a")',
        "<function=look><parameter=word>a</parameter></function>",
        'I look:\n```json\n{"name": "look", "arguments": {"word": "a"}}\n```',
        "<tool_call>",
    ],
)
def test_an_ambiguous_call_is_not_executed(text: str) -> None:
    calls_found = find_text_calls(text, KNOWN)

    assert calls_found is not None
    assert calls_found.calls == ()


PIECES = [
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "```",
    "\n",
    "`",
    "{",
    "}",
    "[",
    "look{",
    " ",
]


@given(st.lists(st.sampled_from([*PIECES, HERMES, '"name"', "é"])).map("".join))
def test_no_model_output_raises_an_error(text: str) -> None:
    calls_found = find_text_calls(text, KNOWN)

    assert calls_found is None or all(name in KNOWN for name, _ in calls_found.calls)


@pytest.mark.parametrize(
    "piece",
    ["<tool_call>", "[TOOL_CALLS]", "`", "```\n", "[", '{"a":', "look{", " ", "<tool_call>\n{"],
)
def test_a_long_text_takes_time_in_proportion(piece: str) -> None:
    def seconds(size: int) -> float:
        text = f"<tool_call>{piece * size}"
        began = time.process_time()
        find_text_calls(text, KNOWN)
        return time.process_time() - began

    least = min(seconds(20_000) for _ in range(3))
    assert min(seconds(80_000) for _ in range(3)) < 12 * least + 0.1


def test_a_call_that_comes_as_text_is_made_like_any_other() -> None:
    with scene(say(f"Let me look.\n{HERMES}"), say("It was a.")) as here:
        investigation = here.ask()

        assert (investigation.ending, investigation.text) == ("final_answer", "It was a.")
        assert here.plugin.ran == ["look a"]
        [turn, _] = here.entries(Said)
        assert (turn.text, [call.name for call in turn.calls]) == ("Let me look.", ["look"])
        [assistant] = [m for m in here.model.requests[1].body["messages"] if m.get("tool_calls")]
        assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"word": "a"}


def test_tool_calls_as_text_cause_one_warning_with_the_server_options(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = HERMES.replace('"a"', '"b"')
    with scene(say(HERMES), say(other), say("It was a.")) as here:
        here.ask()

        [warned] = here.entries(Warned)
        assert "--jinja" in warned.text
        assert "--tool-call-parser" in warned.text
        fields = here.lab.client.hgetall("boyd:{detective}:usage")
        assert read_totals(fields).spoken_at is not None
        assert sum("--jinja" in record.getMessage() for record in caplog.records) == 1


def test_a_model_with_an_unreadable_call_gets_instructions_for_calling_tools() -> None:
    broken = say('<tool_call>{"name": "look", "arguments": {"word": </tool_call>')
    with scene(broken, say(HERMES), say("It was a.")) as here:
        investigation = here.ask()

        assert (investigation.ending, investigation.text) == ("final_answer", "It was a.")
        [note] = here.entries(Steered)
        assert note.why == "spoken_call"
        assert "look" in note.text


def test_markup_of_calls_is_never_an_answer() -> None:
    with scene(say('<tool_call>{"name": "look", "arguments": {"word": </tool_call>')) as here:
        investigation = here.ask()

        assert investigation.ending == "error"
        assert "--jinja" in (investigation.detail or "")
        assert len(here.model.requests) == 2
        assert "<tool_call>" not in here.entries(Ended)[0].text.partition("last message was")[0]


def test_an_answer_that_ends_with_an_example_is_taken_when_the_model_insists() -> None:
    text = 'Use this:\n```json\n{"name": "look", "arguments": {"word": "a"}}\n```'
    with scene(say(text)) as here:
        investigation = here.ask()

        assert (investigation.ending, investigation.text) == ("final_answer", text)
        assert here.plugin.ran == []


def test_an_answer_in_a_form_is_no_call_though_it_looks_like_one() -> None:
    form: dict[str, Any] = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "parameters": {"type": "object"}},
        "required": ["name", "parameters"],
    }
    with scene(say('{"name": "look", "parameters": {}}')) as here:
        investigation = here.ask(answer=form)

        assert investigation.findings == {"name": "look", "parameters": {}}
        assert here.plugin.ran == []


def test_a_call_that_comes_as_text_passes_the_same_gates() -> None:
    text = '<tool_call>{"name": "restart", "arguments": {"word": "web"}}</tool_call>'
    with scene(say(text), say("Done.")) as here:
        investigation = here.ask()

        assert investigation.status == "waiting"
        assert here.plugin.ran == []
