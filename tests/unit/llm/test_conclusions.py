"""The last turn that a limit allows: the model is told, and asked to conclude."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from boyd.models.investigation import Ended, Result, Steered, Warned
from boyd.testing import TESTER
from boyd.testing.model_server import Received, Reply, call, calls, say
from model_kit import changing, scene

PRICES = {"input": 2.0, "output": 8.0}


def last_message(request: Received) -> str:
    """The last message to the model."""
    return str(request.body["messages"][-1]["content"])


@pytest.mark.parametrize("profile", ["research", "general", "execution"])
@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_the_last_step_is_for_the_conclusion(profile: str, wire: str) -> None:
    with scene(concluding, wire=wire, profile=profile, limits={"max_steps": 3}) as here:
        investigation = here.ask()

        assert (investigation.ending, investigation.text) == (
            "max_steps",
            "All in all it was the disk.",
        )
        assert len(here.model.requests) == 3
        assert "This is your last step: 2 of 3 steps are used up" in last_message(
            here.model.requests[-1]
        )
        assert investigation.detail == "2 of 3 steps are used up; the model was asked to conclude"


def concluding(request: Received) -> Reply:
    """A model that looks at something else each time, and answers when it may call nothing."""
    may = request.body.get("tools") and request.body.get("tool_choice") != {"type": "none"}
    if not may:
        return say("All in all it was the disk.")
    return call("look", {"word": f"w{len(request.body['messages'])}"})


def test_an_answer_before_the_last_step_is_a_final_answer() -> None:
    with scene(call("look", {"word": "a"}), say("a."), limits={"max_steps": 3}) as here:
        assert here.ask().ending == "final_answer"
        assert here.entries(Steered) == []


def test_a_single_step_keeps_its_tools() -> None:
    with scene(say("It was the disk."), limits={"max_steps": 1}) as here:
        assert here.ask().ending == "final_answer"
        assert here.model.requests[0].body["tools"]


def test_a_model_that_will_not_conclude_is_asked_once_and_gets_a_digest() -> None:
    with scene(changing_for_ever, limits={"max_steps": 3}, profile="general") as here:
        investigation = here.ask()

        assert (investigation.ending, len(here.model.requests)) == ("max_steps", 3)
        assert "gave no answer after its tools were removed" in (investigation.detail or "")
        assert "saw" in (investigation.text or "")
        assert len(here.plugin.ran) == 2


def changing_for_ever(request: Received) -> Reply:
    """A model that calls a tool whether it has one or not."""
    return call("look", {"word": f"w{len(request.body['messages'])}"})


@pytest.mark.parametrize(
    ("before", "text"), [("", "saw a"), ("It was the disk, by all that I have seen.\n", "the disk")]
)
def test_a_call_that_comes_as_text_in_the_last_step_is_no_answer(before: str, text: str) -> None:
    spoken = say(f'{before}<tool_call>{{"name": "look", "arguments": {{"word": "a"}}}}</tool_call>')
    with scene(spoken, limits={"max_steps": 2}) as here:
        investigation = here.ask()

        assert investigation.ending == "max_steps"
        assert text in (investigation.text or "")
        assert "<tool_call>" not in (investigation.text or "").partition("last message was")[0]
        assert ("gave no answer" in (investigation.detail or "")) == (not before)


@pytest.mark.parametrize(
    "limits", [{"max_tokens": 500}, {"max_cost": 0.0015}, {"max_tool_calls": 2}]
)
def test_a_budget_keeps_enough_for_a_conclusion(limits: dict[str, Any]) -> None:
    with scene(changing(), limits=limits, prices=PRICES, profile="general") as here:
        investigation = here.ask()

        assert (investigation.ending, investigation.text) == (
            "budget_exhausted",
            "All in all it was the disk.",
        )
        used = (
            investigation.counters.usage.input_tokens + investigation.counters.usage.output_tokens
        )
        assert used <= limits.get("max_tokens", used)
        assert investigation.counters.cost <= limits.get("max_cost", investigation.counters.cost)


def test_a_deadline_keeps_enough_for_a_conclusion(monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(changing(), limits={"max_seconds": 325}, profile="general") as here:
        clock = here.lab.engine.store.clock
        real = clock.now
        # Each turn takes 100 s.
        monkeypatch.setattr(
            clock, "now", lambda: real() + timedelta(seconds=100 * len(here.model.requests))
        )
        investigation = here.ask()

        assert (investigation.ending, investigation.text) == (
            "deadline",
            "All in all it was the disk.",
        )
        assert len(here.model.requests) == 4


def test_calls_of_the_turn_that_used_up_the_tokens_are_still_made() -> None:
    three = calls(("look", {"word": "a"}), ("look", {"word": "b"}), ("look", {"word": "c"}))
    with scene(three, limits={"max_tokens": 100}) as here:
        investigation = here.ask()

        assert investigation.ending == "budget_exhausted"
        assert here.plugin.ran == ["look a", "look b", "look c"]
        assert "saw c" in (investigation.text or "")


def test_calls_beyond_the_limit_are_reported_as_skipped() -> None:
    three = calls(("look", {"word": "a"}), ("look", {"word": "b"}), ("look", {"word": "c"}))
    with scene(three, say("It was a or b."), limits={"max_tool_calls": 2}) as here:
        investigation = here.ask()

        assert here.plugin.ran == ["look a", "look b"]
        assert here.results[-1] == ("look", "skipped")
        assert "2 of 2 tool calls are used up" in here.entries(Result)[-1].observation.output
        assert (investigation.ending, investigation.text) == ("budget_exhausted", "It was a or b.")


def test_a_turn_that_jumps_past_a_limit_is_warned_of() -> None:
    with scene(call("look", {"word": "a"}), limits={"max_tokens": 100}) as here:
        here.ask()

        assert [entry.what for entry in here.entries(Warned)] == ["tokens"]
        assert "120 of 100 tokens" in here.entries(Warned)[0].text


def test_the_request_to_conclude_is_the_only_instruction_after_a_turn() -> None:
    same = call("look", {"word": "a"})
    with scene(same, same, say("a."), limits={"max_steps": 3}) as here:
        here.ask()

        assert len(here.entries(Steered)) == 1


def test_an_answer_in_a_form_is_asked_for_in_the_last_step_too() -> None:
    form = {"type": "object", "properties": {"cause": {"type": "string"}}, "required": ["cause"]}

    def reply(request: Received) -> Reply:
        if not request.body.get("tools"):
            return say('{"cause": "disk"}')
        return concluding(request)

    with scene(reply, limits={"max_steps": 2}) as here:
        investigation = here.ask(answer=form)

        assert (investigation.ending, investigation.findings) == ("max_steps", {"cause": "disk"})


def test_the_next_question_of_a_conversation_has_its_tools_again() -> None:
    with scene(concluding, limits={"max_steps": 2}) as here:
        here.ask()
        here.lab.launcher.go_on(here.id, "And now?", TESTER)
        here.settle()

        assert [entry.ending for entry in here.entries(Ended)] == ["max_steps", "max_steps"]
        assert len(here.model.requests) == 4
