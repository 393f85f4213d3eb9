"""Traces: spans from what Redis keeps, ids from names, exported once, and without content."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import fakeredis
import pytest

from boyd.errors import CollectorUnavailable
from boyd.export import tracing
from boyd.export.tracing import spans as names
from boyd.export.tracing import trace_export
from boyd.export.tracing.spans import Span, TraceIds, is_sampled, iteration_trace, trace_link
from boyd.export.tracing.trace_export import OtlpSender
from boyd.intake import IntakeRequest, parse
from boyd.models import Autonomy, LoopResult, ProcedureStep, to_ms
from boyd.models.effect import EffectChecks
from boyd.plugin import Observer, Procedure
from boyd.settings.traces_settings import TracesSettings
from boyd.store.keys import Keys
from boyd.testing import Lab, ScriptedModel
from boyd.testing.model_server import call, say
from boyd.text.trace_context import parse_traceparent
from investigation_kit import Case
from kit import Recorder, agent, choice, chooses, fails, overdue, person, reads, seen, sees
from tracing_kit import Kept, Sink, check, export_of, tree

ASKS = Autonomy(mode="approval-required")
#: What nobody may find in a span.
CANARY = "canary7f3a"
RUN = {"title": "Disk full", "description": "Since noon.", "kind": "investigation"}
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def lab_of(*more: Any, **settings: Any) -> Lab:
    return Lab(agent(sees("eyes", seen()), chooses(choice()), *more, **settings))


def export_spans(lab: Lab) -> list[Span]:
    export, sink = export_of(lab.whole)
    export.export(lab.agent.id)
    return sink.spans


def of_trace(spans: list[Span], name: str) -> list[Span]:
    trace = TraceIds("boyd", "test").trace(name)
    return [span for span in spans if span.trace_id == trace]


def name_of(result: LoopResult) -> str:
    return result.id.partition(":")[2]


def test_an_iteration_is_one_trace_of_its_phases_observers_and_action() -> None:
    lab = lab_of(fails("broken"), Recorder().action())
    result = lab.run()
    spans = export_spans(lab)

    assert tree(spans) == [
        "iteration",
        "  start",
        "  observe",
        "    observer p:eyes",
        "    observer p:broken (failed)",
        "  orient",
        "  decide",
        "  act",
        "    action p:do",
        "  complete",
    ]
    assert of_trace(spans, iteration_trace(name_of(result))) == spans
    settings = TracesSettings(link="https://traces.example/{trace_id}")
    assert trace_link(settings, result) == f"https://traces.example/{spans[0].trace_id:032x}"
    assert trace_link(TracesSettings(ratio=0.0, link=settings.link), result) is None


def test_ids_are_the_same_in_every_process_and_others_for_others() -> None:
    ids = TraceIds("boyd", "test")

    assert TraceIds("boyd", "test").trace("iteration:4") == ids.trace("iteration:4")
    others = [TraceIds("other", "test"), TraceIds("boyd", "test2"), TraceIds("boydt", "est")]
    assert (
        len({ids.trace("iteration:4"), *(identity.trace("iteration:4") for identity in others)})
        == 4
    )
    assert ids.span("iteration:4", "phase", "act", 1) != ids.span("iteration:4", "phase", "act", 2)


def test_sampling_keeps_that_part_of_the_traces_and_the_same_ones_everywhere() -> None:
    ids = [TraceIds("boyd", "test").trace(f"iteration:{n}") for n in range(2000)]
    tenth = [trace_id for trace_id in ids if is_sampled(trace_id, 0.1)]

    assert 130 < len(tenth) < 270
    assert all(is_sampled(trace_id, 0.5) for trace_id in tenth)
    assert all(is_sampled(trace_id, 1.0) for trace_id in ids)
    assert not any(is_sampled(trace_id, 0.0) for trace_id in ids)


def test_a_trace_that_is_not_sampled_is_not_exported_later_either() -> None:
    lab = lab_of(Recorder().action())
    lab.run()
    export, sink = export_of(lab.whole, ratio=0.0)
    export.export("test")
    again, _ = export_of(lab.whole, sink)
    again.export("test")

    assert sink.spans == []


def test_lost_attempts_are_spans_below_the_same_root() -> None:
    lab = lab_of(Recorder().action(idempotent=True))
    lab.launcher.trigger("test")
    lab.deliver(until=lambda: lab.dispatcher.hints[0][0] == "act")
    _, number, epoch = lab.dispatcher.hints.popleft()
    lab.store.iterations.enter(number, epoch, "act", "gone.7.abcd/1")
    lab.client.zadd("boyd:{test}:due", {"phase": 1})
    lab.sweeper.sweep()
    lab.deliver()
    spans = export_spans(lab)

    lost = [span for span in spans if span.error == "lease_lost"]
    assert [(span.name, span.attributes["host.name"]) for span in lost] == [("act", "gone")]
    acts = [span for span in spans if span.name == "act"]
    assert [span.attributes["boyd.attempt"] for span in acts] == [1, 2]
    (done,) = [span for span in spans if span.name == "action p:do"]
    assert done.parent_id == acts[1].span_id
    check(spans)


def test_an_approval_is_a_trace_of_its_own_without_the_wait_and_linked() -> None:
    lab = lab_of(Recorder().action(autonomy=ASKS))
    lab.run()
    (item,) = lab.store.approvals.page(5).pending
    lab.client.hset(
        f"boyd:{{test}}:approval:{item.id}", "createdAt", to_ms(item.created_at) - 10**8
    )
    lab.resolver.answer(item.id, "approved", person("ann"))
    lab.deliver()
    spans = export_spans(lab)

    assert tree(of_trace(spans, f"approval:{item.id}")) == ["approval p:do", "  action p:do"]
    approval = next(span for span in spans if span.name == "approval p:do")
    assert int(str(approval.attributes["boyd.waited_ms"])) >= 10**8
    assert approval.end - approval.start < 60_000
    (root,) = [span for span in spans if span.name == "iteration"]
    assert [(to.why, to.span_id) for to in approval.links] == [("iteration", root.span_id)]
    (act,) = [span for span in spans if span.name == "act"]
    assert [(to.why, to.span_id) for to in act.links] == [("approval", approval.span_id)]


def test_an_approval_comes_when_its_action_has_ended_and_shows_lost_workers() -> None:
    lab = lab_of(Recorder().action(autonomy=ASKS))
    lab.run()
    (item,) = lab.store.approvals.page(5).pending
    lab.resolver.answer(item.id, "approved", person("ann"))
    export, sink = export_of(lab.whole)
    export.export("test")
    assert not of_trace(sink.spans, f"approval:{item.id}")
    name = f"approval:{item.id}"
    lab.store.jobs.enter(name, 1, "gone.7.abcd/1")
    lab.dispatcher.hints.clear()
    overdue(lab, name)
    export.export("test", [])

    assert tree(of_trace(sink.spans, name)) == [
        "approval p:do",
        "  attempt (lease_lost)",
        "  action p:do",
    ]
    check(sink.spans)


def test_a_verification_is_a_late_span_below_its_action() -> None:
    do = Recorder().action(verify=lambda result: "effective", checks=EffectChecks(within=60))
    lab = lab_of(do)
    name = name_of(lab.run())
    export, sink = export_of(lab.whole)
    export.export("test")
    assert not [span for span in sink.spans if span.name == "verify p:do"]
    overdue(lab, f"verify:loop:{name}")
    export.export("test", [])

    lines = tree(of_trace(sink.spans, iteration_trace(name)))
    assert "      verify p:do" in lines
    assert lines.index("      verify p:do") == lines.index("    action p:do") + 1


def test_a_run_links_to_its_caller_and_so_does_an_alert_from_outside() -> None:
    lab = lab_of(Recorder().action())
    sent = seen("alerts", metadata={"traceparent": CALLER.replace("-b7", "-c7")})
    lab.intake(sent, sent)
    run = lab.submit("Look", traceparent=CALLER)
    lab.deliver()
    spans = export_spans(lab)

    (root,) = [span for span in spans if span.name == "iteration"]
    (of_run,) = [span for span in spans if span.name == "run"]
    assert of_run.attributes["boyd.run"] == run.run.id
    assert [(to.why, f"{to.span_id:x}") for to in of_run.links] == [("run", "b7ad6b7169203331")]
    assert [(to.why, f"{to.span_id:x}") for to in root.links] == [("intake", "c7ad6b7169203331")]


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "nonsense",
        CALLER.upper(),
        "ff" + CALLER[2:],
        CALLER + "-more",
        CALLER + "\n",
        CALLER.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        CALLER.replace("b7ad6b7169203331", "0" * 16),
    ],
)
def test_an_invalid_trace_context_is_ignored(text: Any) -> None:
    assert parse_traceparent(CALLER) is not None
    assert parse_traceparent("01" + CALLER[2:] + "-more") is not None
    assert parse_traceparent(text) is None


def test_an_observation_has_the_context_of_its_event_or_else_of_its_request() -> None:
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "traceparent": CALLER}
    other = CALLER.replace("-b7", "-c7")

    def traceparent_of(name: str, body: Any, **headers: str) -> Any:
        request = IntakeRequest("application/cloudevents+json", headers, json.dumps(body).encode())
        (observation,) = parse(name, request)
        return (observation.metadata or {}).get("traceparent")

    assert traceparent_of("cloudevents", event, traceparent=other) == CALLER
    assert traceparent_of("json", {"source": "s", "data": {}}, traceparent=other) == other
    assert traceparent_of("json", {"source": "s", "data": {}}, traceparent="nonsense") is None


def test_spans_are_exported_once() -> None:
    lab = lab_of(Recorder().action())
    export, sink = export_of(lab.whole)
    for _ in range(3):
        lab.run()
        export.export("test")
    export_of(lab.whole, sink)[0].export("test")
    fresh, _ = export_of(lab.whole, sink)
    fresh.export("test")

    assert len({span.trace_id for span in sink.spans}) == 3
    check(sink.spans)


def test_an_unacknowledged_batch_is_sent_again_with_the_same_ids() -> None:
    lab = lab_of(Recorder().action())
    lab.run()
    export, sink = export_of(lab.whole)
    sink.answers = [None]
    with pytest.raises(CollectorUnavailable):
        export.export("test")
    export.export("test")

    check(sink.spans)
    assert tree(sink.spans)[0] == "iteration"


def test_a_refused_batch_does_not_stop_the_export() -> None:
    lab = lab_of(Recorder().action())
    for _ in range(2):
        lab.run()
    export, sink = export_of(lab.whole)
    sink.answers = [False, False]
    export.export("test")

    assert len({span.trace_id for span in sink.spans}) == 1


def test_a_record_that_cannot_be_read_does_not_stop_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = lab_of(Recorder().action())
    lab.run()
    result = lab.run()
    lab.client.hset("boyd:{test}:iteration:1", "decision", "{")
    spans = export_spans(lab)

    assert "iteration 1 of agent test cannot be read" in caplog.text
    assert of_trace(spans, iteration_trace(name_of(result))) == spans


def test_one_process_exports_and_another_takes_over_when_it_stops() -> None:
    lab = lab_of(Recorder().action())
    lab.run()
    first, sink = export_of(lab.whole)
    second, others = export_of(lab.whole)
    first._status, second._status = (
        exporter._status.patched({"name": name}) for exporter, name in ((first, "a"), (second, "b"))
    )
    first.export("test")
    lab.run()
    second.export("test")
    assert (others.spans, second._status.standby) == ([], True)
    first.stop()
    first.run()
    second.export("test")

    check([*sink.spans, *others.spans])
    assert len({span.trace_id for span in others.spans}) == 1


def test_a_process_that_lost_the_export_cannot_record_progress() -> None:
    lab = lab_of(Recorder().action())
    traces = lab.store.trace_progress
    assert traces.take("a") is not None
    lab.client.hset(Keys("test").traces, "until", 1)

    assert traces.take("b") is not None
    assert not traces.note("a", {"at:iteration": "x"})
    assert "at:iteration" not in (traces.take("b") or {})


def test_a_process_that_lost_the_export_leaves_the_rest_to_the_one_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(Kept):
        """Takes so long that another process takes over."""

        def send(self, spans: Sequence[Span]) -> bool:
            """Keep the batch, when it is too late."""
            lab.client.hset(Keys("test").traces, "until", 1)
            assert lab.store.trace_progress.take("another") is not None
            return super().send(spans)

    monkeypatch.setattr(trace_export, "BATCH", 1)
    lab = lab_of(Recorder().action())
    for _ in range(3):
        lab.run()
    export, sink = export_of(lab.whole, Slow())
    export.export("test")

    assert len(sink.batches) == 1


def test_a_procedure_is_a_trace_of_its_steps() -> None:
    steps = [ProcedureStep(id="one", action="p:do"), ProcedureStep(id="two", action="p:do")]
    whole = Procedure(name="whole", description="Both", steps=steps)
    lab = Lab(agent(sees("eyes"), chooses(choice("p:whole")), Recorder().action(), whole))
    name = f"procedure:loop:{name_of(lab.run())}"
    for _ in steps:
        overdue(lab, name)
    spans = export_spans(lab)

    assert tree(of_trace(spans, name)) == [
        "procedure p:whole",
        "  step one",
        "    action p:do",
        "  step two",
        "    action p:do",
    ]
    (procedure,) = [span for span in spans if span.name == "procedure p:whole"]
    (started,) = [span for span in spans if span.name == "action p:whole"]
    assert [(to.why, to.span_id) for to in procedure.links] == [("execution", started.span_id)]
    check(spans)


@pytest.fixture
def case() -> Iterator[Case]:
    """A model that looks, invents a tool, asks for an action, and answers; each with a canary."""
    replies = [
        call("look", {"path": CANARY}),
        call(CANARY, {"path": CANARY}),
        call("clean", {"path": CANARY}),
        say(CANARY),
    ]
    with ScriptedModel(replies, forever=True) as model:
        new_case = Case(fakeredis.FakeServer(), model)
        yield new_case
        new_case.site.services.stop()


def approve(lab: Lab, id: str) -> None:
    """Let a person approve, a worker act, and the model go on."""
    lab.resolver.answer(id, "approved", person(CANARY), CANARY)
    lab.deliver()
    lab.sweeper.sweep()
    lab.deliver()


def export_trace(case: Case, id: str) -> list[Span]:
    export, sink = export_of(case.site.lab.whole)
    export.export("disks", [id])
    return sink.spans


def test_an_investigation_is_a_trace_for_each_part_between_waits(case: Case) -> None:
    id = case.post("/runs", RUN, headers={"traceparent": CALLER}).json["id"]
    (item,) = case.site.lab.store.approvals.page(5).pending
    assert not [span for span in export_trace(case, id) if "agent" in span.name]
    approve(case.site.lab, item.id)
    spans = export_trace(case, id)
    ids = TraceIds("boyd", "disks")

    def part(number: int) -> list[Span]:
        trace = ids.trace(f"investigation:{id}#{number}")
        return [span for span in spans if span.trace_id == trace]

    chat = "  chat scripted"
    tools = ["  execute_tool look", "  execute_tool clean"]
    assert tree(part(1)) == ["invoke_agent disks", chat, tools[0], chat, chat, tools[1]]
    assert tree(part(2)) == ["invoke_agent disks", chat]
    links = {to.why: to for span in (*part(1), *part(2)) for to in span.links}
    assert f"{links['run'].span_id:x}" in CALLER
    assert links["approval"].trace_id == ids.trace(f"approval:{item.id}")
    assert links["before"].span_id == ids.span(f"investigation:{id}#1")
    assert sum(int(str(span.attributes.get(names.INPUT_TOKENS, 0))) for span in part(2)) > 0
    check(spans)


def test_a_question_asked_afterwards_is_a_further_trace(case: Case) -> None:
    case.model._replies = [say("yes")]
    id = case.asked()
    export, sink = export_of(case.site.lab.whole)
    export.export("disks", [id])
    before = len(sink.spans)
    export.export("disks")
    assert len(sink.spans) == before
    case.post(f"/investigations/{id}/messages", {"text": "And now?"})
    export.export("disks")

    ids = TraceIds("boyd", "disks")
    traces = [ids.trace(f"investigation:{id}#{number}") for number in (1, 2)]
    assert list(dict.fromkeys(span.trace_id for span in sink.spans)) == traces
    check(sink.spans)


def test_no_content_leaves_the_deployment(case: Case) -> None:
    lab = case.site.lab
    id = case.post("/runs", {**RUN, "title": CANARY, "description": CANARY}).json["id"]
    (item,) = lab.store.approvals.page(5).pending
    approve(lab, item.id)
    wordy = Recorder(output=CANARY).action(target="what")
    alarm = seen(CANARY, data={CANARY: CANARY}, metadata={"eventId": CANARY})
    broken = Observer(name="broken", observe=raises)
    decision = choice(params={"what": CANARY}, rationale=CANARY)
    other = Lab(
        agent(sees("eyes", alarm), broken, reads("brain", CANARY), chooses(decision), wordy)
    )
    other.submit(CANARY, description=CANARY, source=CANARY)
    other.run(CANARY)
    with Sink() as sink:
        sender = OtlpSender(sink.url)
        for place, ids in ((lab, [id]), (other, [])):
            export_of(place.whole, sender)[0].export(place.agent.id, ids)
        spans = sink.spans()

    assert CANARY in str(other.store.history.get(1))
    assert {"action p:do", "observer p:broken", "execute_tool look"} <= {s.name for s in spans}
    assert not [body for body in sink.bodies if CANARY.encode() in body]


def raises() -> None:
    """Fail with a canary."""
    raise RuntimeError(CANARY)


def test_spans_are_sent_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    lab = lab_of(Recorder().action())
    lab.submit("Look", traceparent=CALLER)
    lab.deliver()
    with Sink() as sink:
        export_of(lab.whole, OtlpSender(sink.url))[0].export("test")
        received = sink.spans()

    assert len(sink.bodies) == 1
    assert [replace(span, kind="internal") for span in _spans_of(lab)] == received


def _spans_of(lab: Lab) -> list[Span]:
    lab.client.delete(Keys("test").traces)
    return [
        replace(span, start=round(span.start), end=round(span.end), links=list(span.links))
        for span in export_spans(lab)
    ]


def test_an_unavailable_collector_raises_but_a_refusing_one_does_not() -> None:
    lab = lab_of(Recorder().action())
    lab.run()
    with Sink() as sink:
        url = sink.url
        sink.status = 400
        assert OtlpSender(url).send(export_spans(lab)) is False
        for status in (302, 403):
            sink.status = status
            with pytest.raises(CollectorUnavailable, match=f"answered {status}"):
                OtlpSender(url).send(export_spans(lab) or _spans_of(lab))


@pytest.mark.parametrize("head", ["200 OK", "302 Found\r\nLocation: /elsewhere"])
def test_an_endless_answer_is_not_read(head: str) -> None:
    chunk, most = b"x" * 1_048_576, 64
    sent: list[int] = []

    def answer(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            while b"\r\n\r\n" not in connection.recv(65_536):
                pass
            connection.sendall(f"HTTP/1.1 {head}\r\n\r\n".encode())
            while len(sent) < most:
                connection.sendall(chunk)
                sent.append(1)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=answer, args=(listening,))
        server.start()
        with suppress(CollectorUnavailable):
            OtlpSender(f"http://127.0.0.1:{listening.getsockname()[1]}").send([])
        server.join()
    assert len(sent) < most


def test_the_names_of_the_specification_that_may_change_are_in_one_module() -> None:
    folder = Path(tracing.__file__).parent
    used = [
        path.name
        for path in folder.glob("*.py")
        if re.search(r"\"(gen_ai|mcp)\.", path.read_text(encoding="utf-8"))
    ]
    assert used == ["spans.py"]
