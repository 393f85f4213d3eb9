"""Compaction of a conversation that is too long for the context of its model."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd import Plugin, tool
from boyd.llm.context_window import Compaction, Target
from boyd.llm.conversation import Conversation
from boyd.llm.messages import Message
from boyd.llm.model_errors import fault_of_event, fault_of_response
from boyd.models.investigation import (
    Asked,
    Compacted,
    Entry,
    Logged,
    Result,
    Said,
    ToolCall,
    ToolObservation,
)
from boyd.testing.model_server import Received, Reply, call, calls, length, say, status
from model_kit import Scene, Word, scene

#: What servers say, each in its own way.
REFUSALS = {
    "OpenAI": {
        "error": {"code": "context_length_exceeded", "type": "invalid_request_error", "message": ""}
    },
    "Anthropic": {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 208310 tokens > 200000 maximum",
        },
    },
    "Anthropic with its answer": {
        "error": {
            "type": "invalid_request_error",
            "message": "input length and `max_tokens` exceed context limit: 199 + 20 > 200",
        }
    },
    "llama.cpp": {
        "error": {
            "code": 400,
            "type": "exceed_context_size_error",
            "message": "request (9000 tokens) exceeds the available context size (8192 tokens)",
        }
    },
    "vLLM": {
        "object": "error",
        "type": "BadRequestError",
        "message": "This model's maximum context length is 4096 tokens. But you want 5000.",
    },
    "Ollama": {"error": {"message": "prompt too long; exceeded max context length by 12 tokens"}},
    "SGLang": {"error": {"message": "The input is longer than the model's context length (8192)."}},
}
FULL = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."


@pytest.mark.parametrize("server", REFUSALS)
def test_a_refusal_for_length_is_known_whatever_the_server_calls_it(server: str) -> None:
    fault = fault_of_response(400, {}, json.dumps(REFUSALS[server]), 0.0)

    assert fault.full
    assert fault.permanent


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (400, {"error": {"message": "tools[0].name does not match the pattern"}}),
        (429, {"error": {"code": "rate_limit_exceeded", "message": "context length: too large"}}),
        (413, {"error": {"code": "rate_limit_exceeded", "message": "Request too large for TPM"}}),
        (400, {"error": {"message": "unknown parameter: context length"}}),
        (503, {"error": {"message": "maximum context length cannot be told now"}}),
    ],
)
def test_other_refusals_are_none_for_length(code: int, error: dict[str, Any]) -> None:
    assert not fault_of_response(code, {}, json.dumps(error), 0.0).full


def test_a_refusal_for_length_within_the_stream_is_known_and_not_repeated() -> None:
    fault = fault_of_event({"type": "exceed_context_size_error", "message": "too long"})

    assert (fault.full, fault.permanent) == (True, True)


class Reader(Plugin):
    """Reads files that are long."""

    id = "reader"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.ran: list[str] = []

    @tool()
    def read(self, params: Word) -> str:
        """Read a file."""
        self.ran.append(params.word)
        return f"{params.word}: " + f"line of {params.word}\n" * 300


def small(limit: int, calls: int = 6) -> Callable[[Received], Reply]:
    """A model with room for so many bytes, which reads that many files before it answers."""
    numbers = itertools.count(1)

    def reply(request: Received) -> Reply:
        if len(request.raw) > limit:
            return status(400, message=FULL)
        number = next(numbers)
        if number > calls or not request.body.get("tools"):
            return say(f"It is file f{calls}.")
        return call("read", {"word": f"f{number}"})

    return reply


def reading(reply: Callable[[Received], Reply], **llm: Any) -> Any:
    """A scene with `Reader`."""
    return scene(reply, plugin=Reader(), profile="off", **llm)


def results(request: Received) -> list[str]:
    """The outputs that a request shows, one for each call."""
    messages = [message for message in request.body["messages"] if message["role"] == "tool"]
    return [json.loads(message["content"])["output"] for message in messages]


def pairs(request: Received) -> None:
    """Check that each call of a request has its result right behind it."""
    open_: list[str] = []
    for message in request.body["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_.pop(0)
            continue
        assert not open_
        open_ = [tool_call["id"] for tool_call in message.get("tool_calls") or []]
    assert not open_


def test_an_investigation_goes_on_when_its_context_is_full_and_old_results_go_first() -> None:
    with reading(small(20_000)) as here:
        investigation = here.ask("Which file is it?")

        assert (investigation.ending, investigation.text) == ("final_answer", "It is file f6.")
        assert here.plugin.ran == ["f1", "f2", "f3", "f4", "f5", "f6"]
        after = next(
            request
            for before, request in itertools.pairwise(here.model.requests)
            if len(before.raw) > 20_000
        )
        shown_outputs = results(after)
        assert "left out to make room; read_output(call=1)" in shown_outputs[0]
        assert "line of" in shown_outputs[-1]


def test_a_compacted_conversation_keeps_the_question_and_pairs_calls_with_results() -> None:
    with reading(small(9_000, calls=12), system="You look after file servers.") as here:
        investigation = here.ask("Which file is it?")

        assert investigation.ending == "final_answer"
        for request in here.model.requests:
            first, second = request.body["messages"][:2]
            assert "You look after file servers." in first["content"]
            assert second["content"].startswith("Which file is it?")
            pairs(request)


def test_a_compaction_is_in_the_log_and_names_the_calls() -> None:
    with reading(small(20_000)) as here:
        here.ask()

        [first, *_] = here.entries(Compacted)
        assert first.why == "full"
        assert first.results[0] == "call00001"
        assert first.after < first.before
        assert first.requests == 1


def test_a_conversation_is_compacted_before_it_reaches_the_size_that_is_known() -> None:
    with reading(small(10**9), context_tokens=5000) as here:
        investigation = here.ask()

        assert investigation.ending == "final_answer"
        assert {entry.why for entry in here.entries(Compacted)} == {"near"}
        assert investigation.counters.requests == investigation.counters.steps
        assert max(len(request.raw) for request in here.model.requests) < 5000 * 6


def test_older_turns_are_summed_up_when_leaving_out_their_results_does_not_help() -> None:
    with reading(small(6_000, calls=20)) as here:
        investigation = here.ask("Which file is it?")

        assert investigation.ending == "final_answer"
        summed_up = [entry for entry in here.entries(Compacted) if entry.folded]
        assert "You called #1 read" in summed_up[0].summary
        assert "line of f1" in summed_up[0].summary


def test_a_conversation_that_never_fits_ends_early_with_the_findings() -> None:
    replies = iter([call("read", {"word": "f1"})])
    with reading(lambda _: next(replies, status(400, message=FULL))) as here:
        investigation = here.ask("Which file is it?")

        assert investigation.ending == "error"
        assert "does not fit into the model's context" in (investigation.detail or "")
        assert "line of f1" in (investigation.text or "")
        assert len(here.model.requests) <= 6


def test_a_question_that_is_too_long_by_itself_is_asked_once() -> None:
    with reading(lambda _: status(400, message=FULL)) as here:
        investigation = here.ask("Why?" * 1000)

        assert investigation.ending == "error"
        assert len(here.model.requests) == 1


def test_the_model_reads_again_what_was_left_out_and_nothing_is_called_again() -> None:
    def reply(request: Received) -> Reply:
        if len(request.raw) > 20_000:
            return status(400, message=FULL)
        count = len(here.plugin.ran)
        if count < 4:
            return call("read", {"word": f"f{count + 1}"})
        if "read_output" in str(request.body["messages"][-1]):
            return say("It is f1.")
        return call("read_output", {"call": 1})

    with reading(reply) as here:
        investigation = here.ask()

        assert investigation.text == "It is f1."
        assert here.plugin.ran == ["f1", "f2", "f3", "f4"]
        page = next(r for tool, r in outputs(here) if tool == "read_output")
        assert page.startswith("[#1, characters 0 to")
        assert "line of f1" in page


def outputs(here: Scene) -> list[tuple[str, str]]:
    """Tool and output of each result."""
    return [(e.observation.tool, e.observation.output) for e in here.log if e.kind == "result"]


def test_an_answer_for_which_no_room_was_left_is_asked_for_again_with_more_room() -> None:
    def reply(request: Received) -> Reply:
        count = len(here.plugin.ran)
        if count < 3:
            return call("read", {"word": f"f{count + 1}"})
        if here.entries(Compacted):
            return say("It is f3.")
        return length(say("It is"))

    with reading(reply) as here:
        investigation = here.ask()

        assert (investigation.ending, investigation.text) == ("final_answer", "It is f3.")
        assert [entry.why for entry in here.entries(Compacted)] == ["cut"]


# The rules, without a model


def log_of(sizes: list[int], asked_at: int = 0) -> list[Entry]:
    """A log with a question, and a turn with a call for each size of a result."""
    log: list[Entry] = [Asked(text="Why?")]
    for number, size in enumerate(sizes, 1):
        if number == asked_at:
            log += [Said(step=number, text="So."), Asked(text="And now?")]
        tool_call = ToolCall(id=f"call{number:05d}", name="read", arguments="{}")
        observation = ToolObservation(
            time=datetime(2026, 1, 1, tzinfo=UTC),
            tool="read",
            call_id=tool_call.id,
            status="succeeded",
            output="x" * size,
        )
        log += [Said(step=number, calls=[tool_call]), Result(observation=observation)]
    return log


def conversation(log: list[Entry]) -> Conversation:
    """The conversation in a log."""
    return Conversation.of(Logged(id=f"{n}-0", entry=entry) for n, entry in enumerate(log, 1))


def check(view: list[Message], question: str) -> None:
    """Check that a view can be sent, and has the question."""
    assert question in [entry.text for entry in view if entry.role == "user"]
    open_: list[str] = []
    for message in view:
        if message.role == "tool":
            assert message.call_id == open_.pop(0)
        else:
            assert not open_
            open_ = [tool_call.id for tool_call in message.calls]
    assert not open_


@given(
    st.lists(st.integers(0, 9000), min_size=1, max_size=12),
    st.integers(0, 12),
    st.lists(st.floats(0.1, 0.9), min_size=1, max_size=6),
)
def test_every_compaction_shrinks_stays_valid_and_keeps_the_question(
    sizes: list[int], asked_at: int, targets: list[float]
) -> None:
    log = log_of(sizes, asked_at)
    question = "And now?" if 0 < asked_at <= len(sizes) else "Why?"
    for share in targets:
        before = Compaction.of(conversation(log))
        shorter = before.shorten("full", Target(share * before.size(), 0))
        if shorter is None:
            break
        log.append(shorter)
        after = Compaction.of(conversation(log))
        assert after.size() <= 0.9 * before.size()
        assert after.size() == shorter.after
        check(after.view(), question)


def test_the_newest_result_stays_whole_as_long_as_older_ones_can_go() -> None:
    whole = conversation(log_of([5000, 5000, 5000]))
    shorter = Compaction.of(whole).shorten("full", Target(9000, 0))

    assert shorter is not None
    assert shorter.results == ["call00001", "call00002"]
    view = Compaction(whole.messages, whole.observations, shorter).view()
    assert "x" * 5000 in view[-1].text


def test_no_more_results_are_left_out_than_have_to_be() -> None:
    shorter = Compaction.of(conversation(log_of([5000] * 4))).shorten("near", Target(16_500, 0))

    assert shorter is not None
    assert shorter.results == ["call00001"]


def test_a_long_conversation_is_looked_at_few_times_to_compact_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compaction = Compaction.of(conversation(log_of([1000] * 200)))
    views: list[None] = []
    real = Compaction._view

    def count_messages(self: Compaction, state: Compacted) -> list[Message]:
        views.append(None)
        return real(self, state)

    monkeypatch.setattr(Compaction, "_view", count_messages)
    shorter = compaction.shorten("full", Target(100_000, 0))

    assert shorter is not None
    assert shorter.after <= 100_000
    assert len(views) < 20


def test_two_calls_of_one_turn_are_left_out_one_by_one() -> None:
    with reading(lambda r: two_then_one(r, here)) as here:
        investigation = here.ask()

        assert investigation.ending == "final_answer"
        for request in here.model.requests:
            pairs(request)


def two_then_one(request: Received, here: Scene) -> Reply:
    """A model that asks for two files at once, again and again."""
    if len(request.raw) > 25_000:
        return status(400, message=FULL)
    count = len(here.plugin.ran)
    if count >= 8:
        return say("It is f8.")
    return calls(("read", {"word": f"f{count + 1}"}), ("read", {"word": f"f{count + 2}"}))
