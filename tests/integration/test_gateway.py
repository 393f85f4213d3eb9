"""Turns of a model over real HTTP, on both wires."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import SecretStr

from boyd.errors import ConfigError
from boyd.llm import gateway
from boyd.llm.gateway import Gateway
from boyd.llm.messages import Message, ModelRequest, ToolSpec, Turn
from boyd.llm.model_errors import ModelRefused, ModelUnavailable, Stopped
from boyd.models.investigation import ToolCall, Usage
from boyd.settings.model import ModelSettings
from boyd.testing.model_server import (
    Received,
    Reply,
    ScriptedModel,
    Step,
    call,
    calls,
    cut_after,
    empty,
    error_event,
    hang,
    length,
    main,
    say,
    silence,
    status,
    unfinished,
)
from boyd.testing.scripted_replies import Cut

WireName = Literal["openai", "anthropic"]
KEY = SecretStr("sk-very-secret")
TOOL = ToolSpec(name="read", description="Reads.", parameters={"type": "object"})
ASK = ModelRequest(messages=[Message(role="user", text="Is it full? Schön.")], tools=[TOOL])
EVENTS = b"content-type: text/event-stream\r\n"
COST = Usage(input_tokens=100, output_tokens=20)


@dataclass
class Watcher:
    """Keeps what it is told, and stops when *until* says so."""

    told: list[tuple[str, str]] = field(default_factory=list)
    discards: list[str] = field(default_factory=list)
    until: Callable[[Watcher], bool] = lambda watcher: False

    def delta(self, kind: Literal["text", "reasoning"], text: str) -> None:
        self.told.append((kind, text))

    def discard_deltas(self, reason: str) -> None:
        self.discards.append(reason)
        self.told.clear()

    def is_stopped(self) -> bool:
        return self.until(self)

    def text_of(self, kind: str) -> str:
        return "".join(text for message_kind, text in self.told if message_kind == kind)


@dataclass
class World:
    """A scripted server, and a gateway to it that does not really wait."""

    server: ScriptedModel
    gateway: Gateway
    slept: list[float]
    watcher: Watcher

    def turn(self, request: ModelRequest = ASK) -> Turn:
        return self.gateway.turn(request, self.watcher)

    @property
    def pause(self) -> float:
        return sum(self.slept)


@pytest.fixture(params=["openai", "anthropic"])
def wire(request: pytest.FixtureRequest) -> WireName:
    return "anthropic" if request.param == "anthropic" else "openai"


@pytest.fixture
def world(wire: WireName) -> Callable[..., Any]:
    """Makes worlds of the wire under test."""

    @contextmanager
    def make(*replies: Step, key: SecretStr | None = KEY, **timeouts: float) -> Iterator[World]:
        slept: list[float] = []
        with ScriptedModel(replies) as server:
            settings = settings_for(server, wire, timeouts=timeouts)
            clock = lambda: 1_000_000.0  # noqa: E731
            with Gateway(settings, key, sleep=slept.append, clock=clock) as model_gateway:
                yield World(server, model_gateway, slept, Watcher())

    return make


def settings_for(server: ScriptedModel, wire: WireName, **fields: Any) -> ModelSettings:
    base = f"{server.url}/v1" if wire == "openai" else server.url
    return ModelSettings(wire=wire, base_url=base, model="m", **fields)


# A turn


def test_a_turn_is_shown_as_it_comes_and_given_as_a_whole(world: Any) -> None:
    reply = say("The disk is full. Schön! 😀", reasoning="Let me see.", chunk=3)
    with world(reply) as w:
        turn = w.turn()

    assert turn == Turn(
        text="The disk is full. Schön! 😀", reasoning="Let me see.", usage=COST, finish="stop"
    )
    assert w.watcher.text_of("text") == turn.text
    assert w.watcher.text_of("reasoning") == turn.reasoning
    assert len(w.watcher.told) > 5
    assert w.slept == []


def test_a_delta_is_shown_before_the_turn_is_complete(world: Any) -> None:
    with world(silence(6, say("It is full, I say.", chunk=2)), idle=60) as w:
        watching = Watcher(until=lambda watcher: bool(watcher.told))
        with pytest.raises(Stopped):
            w.gateway.turn(ASK, watching)

    assert watching.told


def test_calls_come_in_the_job_of_the_model(world: Any) -> None:
    with world(calls(("read", {"path": "/a"}), ("write", {"n": 1}), text="I look.")) as w:
        turn = w.turn()

    assert [(model_call.name, json.loads(model_call.arguments)) for model_call in turn.calls] == [
        ("read", {"path": "/a"}),
        ("write", {"n": 1}),
    ]
    assert turn.finish == "calls"
    assert turn.text == "I look."
    assert len({model_call.id for model_call in turn.calls}) == 2


def test_thoughts_are_separated_from_the_text(world: Any) -> None:
    with world(say("<think>Hm.</think>It is full.", chunk=2)) as w:
        turn = w.turn()

    assert (turn.text, turn.reasoning) == ("It is full.", "Hm.")
    assert w.watcher.text_of("text") == "It is full."


def test_thoughts_are_never_sent_back(world: Any) -> None:
    with world(call("read", reasoning="SECRET THOUGHT"), say("Done.")) as w:
        turn = w.turn()
        w.turn(
            ModelRequest(
                messages=[
                    *ASK.messages,
                    Message(role="assistant", text=turn.text, calls=turn.calls),
                    Message(role="tool", text="full", call_id=turn.calls[0].id),
                ],
                tools=[TOOL],
            )
        )

    assert b"THOUGHT" not in w.server.requests[1].raw


def test_arguments_that_are_no_json_come_as_they_are(world: Any) -> None:
    with world(call("read", '{"path": nonsense')) as w:
        turn = w.turn()

    assert turn.calls[0].arguments == '{"path": nonsense'
    assert turn.finish == "calls"


def test_an_empty_turn_is_a_turn(world: Any) -> None:
    with world(empty()) as w:
        assert w.turn() == Turn(usage=COST)


def test_a_filtered_turn_says_so_and_calls_nothing(world: Any) -> None:
    with world(call("read", finish="filtered")) as w:
        turn = w.turn()

    assert (turn.finish, turn.calls) == ("filtered", [])


@pytest.mark.parametrize(
    "cut",
    [
        *("plain", "same_index", "no_index", "no_id", "bare"),
        *("new_ids", "same_id", "repeated_name", "object", "empty"),
    ],
)
def test_two_calls_stay_two_however_the_server_cuts_them(cut: Cut) -> None:
    reply = calls(("read", {"path": "/a"}), ("read", {"path": "/b"}), ("uptime", {}), cut=cut)
    with ScriptedModel([reply]) as server, Gateway(settings_for(server, "openai")) as model_call:
        turn = model_call.turn(ASK, Watcher())

    assert [(tool_call.name, json.loads(tool_call.arguments)) for tool_call in turn.calls] == [
        ("read", {"path": "/a"}),
        ("read", {"path": "/b"}),
        ("uptime", {}),
    ]
    assert len({made_call.id for made_call in turn.calls}) == 3


def test_an_id_that_an_earlier_turn_had_is_not_given_again(world: Any) -> None:
    first = [ToolCall(id="call_same", name="read")]
    talk = [
        *ASK.messages,
        Message(role="assistant", calls=first),
        Message(role="tool", call_id="call_same", text="1"),
    ]
    reply = call("read").model_copy(
        update={"calls": [call("read").calls[0].patched({"id": "call_same"})]}
    )
    with world(reply) as w:
        turn = w.turn(ModelRequest(messages=talk, tools=[TOOL]))

    assert turn.calls[0].id == "call_3_1"


# What is sent


def test_the_server_gets_key_and_conversation(world: Any, wire: WireName) -> None:
    with world(say("Yes.")) as w:
        w.turn()

    [sent] = w.server.requests
    assert sent.wire == wire
    assert sent.body["stream"] is True
    assert sent.headers["content-type"] == "application/json"
    credential = "Bearer sk-very-secret" if wire == "openai" else "sk-very-secret"
    assert sent.headers["authorization" if wire == "openai" else "x-api-key"] == credential
    assert "Is it full? Schön.".encode() in sent.raw


def test_without_a_key_none_is_sent(world: Any) -> None:
    with world(say("Yes."), key=None) as w:
        w.turn()

    assert not {"authorization", "x-api-key"} & set(w.server.requests[0].headers)


def test_nothing_in_the_environment_comes_between_this_host_and_its_model(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with world(say("Yes.")) as w:
        assert w.turn().text == "Yes."


# Attempts

GATEWAY_ERRORS: dict[str, Step] = {
    **{str(code): status(code) for code in (408, 409, 425, 429, 500, 502, 503, 504, 529)},
    "cut before anything": cut_after(0),
    "cut in the middle": cut_after(3),
    "reset": cut_after(2).model_copy(update={"end": "reset"}),
    "clean end without a reason": unfinished(),
    "unfinished call": unfinished(call("read", {"path": "/a"})),
    "error event": error_event("overloaded_error"),
    "silence at first": silence(),
    "silence later": silence(2),
}


@pytest.mark.parametrize("name", GATEWAY_ERRORS)
def test_after_a_gateway_error_the_same_bytes_are_sent_again(world: Any, name: str) -> None:
    # Only silence is waited for: on a busy machine everything else takes as long as it takes.
    waits = {"first": 1.0, "idle": 1.0} if "silence" in name else {}
    with world(GATEWAY_ERRORS[name], say("Yes."), **waits) as w:
        turn = w.turn()

    assert (turn.text, turn.calls, turn.requests) == ("Yes.", [], 2)
    first, second = w.server.requests
    assert first.raw == second.raw
    assert w.pause == 2
    assert len(w.watcher.discards) == 1
    assert w.watcher.text_of("text") == "Yes."


@pytest.mark.parametrize("code", [400, 401, 402, 403, 404, 413, 422])
def test_a_refused_request_is_not_retried(world: Any, code: int) -> None:
    with (
        world(status(code, message="no such thing"), say("Yes.")) as w,
        pytest.raises(ModelRefused, match="no such thing") as raised,
    ):
        w.turn()

    assert (raised.value.status, raised.value.requests) == (code, 1)
    assert len(w.server.requests) == 1
    assert w.slept == []


def test_an_error_event_about_the_request_is_a_refusal(world: Any) -> None:
    with world(error_event("invalid_request_error"), say("Yes.")) as w, pytest.raises(ModelRefused):
        w.turn()

    assert len(w.server.requests) == 1


def test_three_attempts_with_waits_of_0_2_and_4_seconds_then_it_is_unavailable(
    world: Any,
) -> None:
    marks: set[float] = set()
    with world(*[status(503, message="too busy")] * 5) as w:

        def look(watcher: Watcher) -> bool:
            marks.add(w.pause)
            return False

        w.watcher.until = look
        with pytest.raises(ModelUnavailable, match="too busy") as raised:
            w.turn()

    assert (raised.value.status, raised.value.requests) == (503, 3)
    assert len(w.server.requests) == 3
    assert len({sent.raw for sent in w.server.requests}) == 1
    assert w.pause == 2 + 4
    assert {0.0, 2.0, 6.0} <= marks
    assert max(w.slept) <= 0.25
    assert len(w.watcher.discards) == 3


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (1, 2),
        (7, 7),
        (3600, 60),
        ("Mon, 12 Jan 1970 13:47:10 GMT", 30),
        ("rubbish", 2),
    ],
)
def test_the_server_may_ask_for_more_time_up_to_a_minute(
    world: Any, header: float | str, seconds: float
) -> None:
    with world(status(429, retry_after=header), say("Yes.")) as w:
        w.turn()

    assert w.pause == seconds


def test_time_asked_for_holds_for_the_next_attempt_only(world: Any) -> None:
    with world(status(429, retry_after=10), status(503), say("Yes.")) as w:
        w.turn()

    assert w.pause == 10 + 4


def test_nobody_there_is_a_gateway_error(wire: WireName) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = ModelSettings(wire=wire, base_url=f"http://127.0.0.1:{port}/v1", model="m")
    slept: list[float] = []
    with (
        Gateway(settings, sleep=slept.append) as model_gateway,
        pytest.raises(ModelUnavailable, match="refused") as raised,
    ):
        model_gateway.turn(ASK, Watcher())

    assert (raised.value.status, raised.value.requests) == (None, 3)
    assert sum(slept) == 6


def test_an_answer_that_drips_for_ever_is_given_up_after_the_total_time(world: Any) -> None:
    drip = say("x" * 20_000, chunk=1)
    with world(drip, drip, drip, total=0.05, idle=5) as w:
        w.watcher.delta = lambda kind, text: time.sleep(0.001)
        with pytest.raises(ModelUnavailable, match=r"not complete within 0\.05 s"):
            w.turn()


def test_a_slow_beginning_has_a_limit_of_its_own(world: Any) -> None:
    with world(hang(60, say("late")), say("Yes."), first=2, idle=60) as w:
        assert w.turn().requests == 2
    assert "no event arrived within 2 s" in w.watcher.discards[0]


def test_redirects_are_not_followed(world: Any) -> None:
    with world(status(307), say("Yes.")) as w, pytest.raises(ModelRefused, match="not followed"):
        w.turn()

    assert len(w.server.requests) == 1


# Ends


def test_an_end_without_reason_or_marker_is_no_answer(world: Any) -> None:
    with (
        world(*[unfinished(say("It is"))] * 3) as w,
        pytest.raises(ModelUnavailable, match="cut off without a finish reason"),
    ):
        w.turn()


def test_a_server_that_gives_a_reason_needs_no_marker(world: Any) -> None:
    with world(say("Yes.", end="unmarked")) as w:
        turn = w.turn()

    assert (turn.text, turn.requests) == ("Yes.", 1)


@pytest.mark.parametrize("end", ["cut", "reset", "silence"])
def test_a_turn_with_a_finish_reason_is_complete_despite_a_broken_connection(
    world: Any, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "_LINGER", 0.1)
    with world(say("Yes.", end=end, after=100)) as w:
        turn = w.turn()

    assert (turn.text, turn.requests) == ("Yes.", 1)


def test_half_a_call_at_the_limit_of_length_is_dropped(world: Any) -> None:
    reply = calls(("read", {"path": "/a"}), ("write", {"path": "/b"}), text="So:")
    with world(length(reply)) as w:
        turn = w.turn()

    assert (turn.text, turn.calls, turn.finish) == ("So:", [], "length")


def test_a_long_text_at_the_limit_of_length_is_kept(world: Any) -> None:
    with world(length(say("It is"))) as w:
        turn = w.turn()

    assert (turn.text, turn.finish) == ("It is", "length")


# Usage


def test_usage_that_the_server_does_not_report_is_estimated(world: Any) -> None:
    with world(say("x" * 40, usage=None)) as w:
        turn = w.turn()

    assert turn.usage.estimated
    assert turn.usage.output_tokens == 10
    sent = len(w.server.requests[0].raw.decode())
    assert turn.usage.input_tokens == pytest.approx(sent / 4, abs=1)


def test_the_known_cost_of_failed_attempts_counts() -> None:
    usage = Usage(input_tokens=1000, output_tokens=1)
    with (
        ScriptedModel([cut_after(3, say("It is", usage=usage)), say("Yes.")]) as server,
        Gateway(settings_for(server, "anthropic"), sleep=lambda _: None) as model_gateway,
    ):
        turn = model_gateway.turn(ASK, Watcher())

    assert turn.usage == usage + COST


def test_an_error_tells_what_its_attempts_have_cost() -> None:
    with (
        ScriptedModel([error_event()] * 3) as server,
        Gateway(settings_for(server, "anthropic"), sleep=lambda _: None) as model_gateway,
        pytest.raises(ModelUnavailable) as raised,
    ):
        model_gateway.turn(ASK, Watcher())

    assert raised.value.usage == Usage(input_tokens=300, output_tokens=3)


# Stopping


def test_a_stopped_watch_sends_nothing(world: Any) -> None:
    with world(say("Yes.")) as w:
        w.watcher.until = lambda _: True
        with pytest.raises(Stopped) as raised:
            w.turn()

    assert w.server.requests == []
    assert raised.value.requests == 0


def test_stopping_ends_the_wait_for_the_next_attempt(world: Any) -> None:
    with world(status(503, retry_after=60), say("Yes.")) as w:
        w.watcher.until = lambda _: w.pause >= 1
        with pytest.raises(Stopped) as raised:
            w.turn()

    assert w.pause == 1
    assert raised.value.requests == len(w.server.requests) == 1


def test_stopping_ends_the_wait_for_a_silent_server(world: Any) -> None:
    event = threading.Event()

    def never(request: Received) -> Reply:
        event.set()
        return silence()

    with world(never) as w:
        w.watcher.until = lambda _: event.is_set()
        start = time.monotonic()
        with pytest.raises(Stopped) as raised:
            w.turn()

    assert time.monotonic() - start < 50
    assert raised.value.requests == 1


def test_stopping_closes_the_connection_so_that_the_model_stops_too(wire: WireName) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        port = listening.getsockname()[1]
        settings = ModelSettings(wire=wire, base_url=f"http://127.0.0.1:{port}", model="m")
        event = threading.Event()

        def serve() -> None:
            connection, _ = listening.accept()
            connection.settimeout(60)
            with connection:
                while connection.recv(65536):
                    is_asked.set()
            event.set()

        is_asked = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        with Gateway(settings) as model_gateway, pytest.raises(Stopped):
            model_gateway.turn(ASK, Watcher(until=lambda _: is_asked.is_set()))
        assert event.wait(120)
        thread.join()
    assert not [
        model_thread for model_thread in threading.enumerate() if model_thread.name == "boyd-model"
    ]


# Safety


@pytest.mark.parametrize("key", ["", "two words", "line\n", "ключ"])
def test_a_key_that_no_header_can_hold_is_refused_without_telling_it(key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Gateway(ModelSettings(base_url="https://model.example/v1", model="m"), SecretStr(key))

    assert not key or key not in str(raised.value)


@pytest.mark.parametrize("code", [401, 503])
def test_a_server_that_repeats_the_key_does_not_get_it_into_a_message(
    world: Any, code: int
) -> None:
    error = "wrong key sk-very-secret " + "x" * 470 + " sk-very-secret"
    with (
        world(*[status(code, message=error)] * 3) as w,
        pytest.raises((ModelRefused, ModelUnavailable)) as raised,
    ):
        w.turn()

    for text in (str(raised.value), *w.watcher.discards):
        assert "sk-v" not in text
        assert "wrong key [redacted]" in text
        assert len(text) < 650
    assert "sk-very-secret" not in repr(w.gateway.__dict__)


def test_an_event_of_more_than_a_mebibyte_is_a_gateway_error(world: Any) -> None:
    large = say("x" * (1 << 20) + "x", chunk=2 << 20)
    with world(large, say("Yes.")) as w:
        assert w.turn().requests == 2
    assert "limit" in w.watcher.discards[0]


def test_an_answer_that_is_too_large_is_a_gateway_error(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "MAX_ANSWER", 1 << 19)
    large = say("x" * (3 << 18), chunk=100_000)
    with world(large, say("Yes.")) as w:
        assert w.turn().requests == 2
    assert "the answer is larger than" in w.watcher.discards[0]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<html>", "instead of an event stream"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "instead of an event stream"),
    ],
)
def test_a_response_that_is_not_an_event_stream_is_refused(answer: bytes, reason: str) -> None:
    with (
        raw_server([answer]) as url,
        Gateway(ModelSettings(base_url=url, model="m")) as model_gateway,
        pytest.raises(ModelRefused, match=reason),
    ):
        model_gateway.turn(ASK, Watcher())


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\n" + EVENTS + b"\r\ndata: {nonsense\n\n",
        b"HTTP/1.1 200 OK\r\n" + EVENTS + b"content-encoding: gzip\r\n\r\ndata: {}\n\n",
        b"HTTP/1.1 200 OK\r\n" + EVENTS + b"content-length: 900\r\n\r\ndata: ",
    ],
)
def test_malformed_responses_make_the_model_unavailable(answer: bytes) -> None:
    with raw_server([answer] * 3) as url:
        model_gateway = Gateway(ModelSettings(base_url=url, model="m"), sleep=lambda _: None)
        with model_gateway, pytest.raises(ModelUnavailable):
            model_gateway.turn(ASK, Watcher())


def test_events_are_utf_8_whatever_the_server_says_and_may_have_comments() -> None:
    event = json.dumps(
        {"choices": [{"index": 0, "delta": {"content": "Schön"}, "finish_reason": "stop"}]},
        ensure_ascii=False,
    )
    answer = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=latin-1\r\n\r\n"
        b": waiting\r\n\r\n" + f"data: {event}\r\n\r\n".encode()
    )
    with (
        raw_server([answer]) as url,
        Gateway(ModelSettings(base_url=url, model="m")) as model_gateway,
    ):
        assert model_gateway.turn(ASK, Watcher()).text == "Schön"


@contextmanager
def raw_server(answers: Sequence[bytes]) -> Iterator[str]:
    """A server that answers each connection with some bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)

        def serve() -> None:
            for answer in answers:
                connection, _ = listening.accept()
                with connection:
                    connection.settimeout(60)
                    read = b""
                    while not read.endswith(b"}"):
                        read += connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


# The scripted server


def test_a_reply_may_be_made_of_the_request_and_the_last_one_be_repeated() -> None:
    def parrot(request: Received) -> Reply:
        return say(f"{len(request.body['messages'])} messages")

    with ScriptedModel([call("read"), parrot], forever=True) as server:
        with Gateway(settings_for(server, "openai")) as model_gateway:
            turns = [model_gateway.turn(ASK, Watcher()) for _ in range(3)]
        assert server.is_over

    assert [turn.text for turn in turns] == ["", "1 messages", "1 messages"]


def test_a_script_that_is_over_says_so(world: Any) -> None:
    with world() as w, pytest.raises(ModelUnavailable, match="the script is over"):
        w.turn()


def test_a_script_from_a_file_is_served_until_a_signal_comes(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('{"replies": [{"text": "Hello."}]}')
    command = [sys.executable, "-m", "boyd.testing.model_server", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with Gateway(ModelSettings(base_url=url, model="m")) as model_gateway:
            assert model_gateway.turn(ASK, Watcher()).text == "Hello."
        process.terminate()
        assert process.wait(120) == 0


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("{", "Invalid JSON"),
        ("{}", "replies: Field required"),
        ('{"replies": [{"txet": "a"}]}', "replies.0.txet"),
        ('{"replies": []}', "replies"),
    ],
)
def test_a_file_that_is_no_script_is_refused_with_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str, reason: str
) -> None:
    path = tmp_path / "script.json"
    path.write_text(script)

    assert main([str(path)]) == 2
    assert reason in capsys.readouterr().err


def test_the_scripted_server_needs_neither_the_client_nor_an_imitated_redis() -> None:
    code = (
        "import sys, boyd.testing.model_server;"
        "print([n for n in ('httpx2', 'fakeredis', 'redis', 'celery') if n in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == "[]"


def test_the_package_names_the_lab_and_nothing_that_is_not_there() -> None:
    import boyd.testing

    assert boyd.testing.Lab.__name__ == "Lab"
    assert boyd.testing.ScriptedModel is ScriptedModel
    with pytest.raises(AttributeError, match="nothing"):
        _ = boyd.testing.nothing
