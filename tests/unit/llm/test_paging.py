"""Outputs that the model is shown in part, how it reads on, and how much it may say itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from boyd import Plugin, tool
from boyd.llm.messages import MAX_SAID, SHOWN
from boyd.models.investigation import Result, Said
from boyd.testing.model_server import Received, Reply, call, say
from model_kit import Word, scene


class Log(Plugin):
    """Has one long log."""

    id = "log"

    @tool()
    def read(self, params: Word) -> str:
        """Read the log."""
        return "".join(f"{n:05d} something\n" for n in range(2000))

    @tool()
    def huge(self, params: Word) -> str:
        """Read far too much."""
        return "x" * 200_000

    @tool()
    def short(self, params: Word) -> str:
        """Read a word."""
        return "ok"


def last_output(request: Received) -> str:
    """The output that a request shows last."""
    return str(json.loads(request.body["messages"][-1]["content"])["output"])


def names(request: Received) -> set[str]:
    """The tools that a request offers."""
    return {definition["function"]["name"] for definition in request.body["tools"]}


def test_the_model_reads_an_output_to_its_end_without_calling_the_tool_again() -> None:
    pages: list[str] = []

    def reply(request: Received) -> Reply:
        if len(request.body["messages"]) == 2:
            return call("read", {})
        pages.append(last_output(request))
        on = pages[-1].partition("]")[0].partition("offset=")[2].partition(" ")[0]
        if len(pages) == 1:
            on = "3600"
        return call("read_output", {"call": 1, "offset": int(on)}) if on else say("I have read it.")

    with scene(reply, plugin=Log(), limits={"max_steps": 30}) as here:
        investigation = here.ask()

        assert investigation.text == "I have read it."
        assert [name for name, _ in here.results].count("read") == 1
        whole = here.entries(Result)[0].observation.output
        read = "".join(page.partition("]\n")[2] for page in pages[1:])
        assert whole == whole[:3600] + read


def test_a_result_that_is_cut_says_how_to_read_on() -> None:
    with scene(call("read", {}), say("I see."), plugin=Log()) as here:
        here.ask()

        assert "read_output(call=1, offset=3600) continues there" in last_output(
            here.model.requests[1]
        )
        assert len(last_output(here.model.requests[1])) < SHOWN + 200


def test_the_tool_is_offered_once_there_is_something_to_read() -> None:
    with scene(call("short", {}), call("read", {}), say("I see."), plugin=Log()) as here:
        here.ask()

        offered = ["read_output" in names(request) for request in here.model.requests]
        assert offered == [False, False, True]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"call": 9}, "there is no result #9"),
        ({"call": 1, "offset": 99_999}, "the output of #1 has 32000 characters"),
        ({"call": 0}, "call"),
        ({}, "call"),
    ],
)
def test_a_page_that_is_not_there_is_an_error_that_says_what_is(
    arguments: Any, expected: str
) -> None:
    script = [call("read", {}), call("read_output", arguments), say("I see.")]
    with scene(*script, plugin=Log()) as here:
        here.ask()

        assert here.results[-1] == ("read_output", "failed")
        assert expected in here.entries(Result)[-1].observation.output


def test_of_an_output_that_was_not_kept_whole_the_page_says_so() -> None:
    with scene(
        call("huge", {}), call("read_output", {"call": 1}), say("I see."), plugin=Log()
    ) as here:
        here.ask()

        assert "kept of 200000 bytes" in here.entries(Result)[-1].observation.output


def test_results_are_numbered_for_the_model_to_cite() -> None:
    with scene(call("short", {}), call("short", {"word": "b"}), say("(#2)"), plugin=Log()) as here:
        here.ask()

        outputs = [json.loads(m["content"]) for m in here.model.requests[-1].body["messages"][3::2]]
        assert [output["call"] for output in outputs] == ["#1", "#2"]
        assert "as in #3" in here.model.requests[0].body["messages"][0]["content"]


def test_turning_pages_does_not_bring_the_end_nearer() -> None:
    def reply(request: Received) -> Reply:
        if len(request.body["messages"]) == 2:
            return call("read", {})
        if len(here.results) < 6:
            return call("read_output", {"call": 1, "offset": 1000 * len(here.results)})
        return say("I have read it.")

    with scene(reply, plugin=Log(), profile="research") as here:
        investigation = here.ask()

        assert (investigation.ending, len(here.results)) == ("final_answer", 6)


def test_an_answer_that_is_too_long_is_kept_in_part_and_says_so() -> None:
    with scene(say("word " * 60_000, chunk=100_000)) as here:
        investigation = here.ask()

        text = investigation.text or ""
        assert investigation.ending == "final_answer"
        assert len(text) < MAX_SAID + 100
        assert text.endswith("[200000 characters left out: at most 100000 of a turn are kept]")
        assert len(here.entries(Said)[0].text) < MAX_SAID + 100


@pytest.mark.long
def test_an_answer_in_a_form_that_is_too_long_is_asked_for_again() -> None:
    form = {"type": "object", "properties": {"cause": {"type": "string"}}}
    long, right = call("answer", {"cause": "x" * 150_000}), call("answer", {"cause": "disk"})
    with scene(long, right) as here:
        investigation = here.ask(answer=form)

        assert investigation.findings == {"cause": "disk"}
        assert "too long" in here.entries(Result)[0].observation.output
