"""Traces through a real collector, while workers are killed in every phase."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import pytest
import requests
import rotel

from archive_kit import read_trace_status
from boyd.export.tracing.spans import Span, TraceIds
from boyd.models import Actor
from harness import Deployment, free_port, wait_until
from tracing_kit import Sink, check, tree

pytestmark = [pytest.mark.real, pytest.mark.long]

AGENTS = ("agents.traced:careful", "agents.traced:traced")
BOB = Actor(principal="bob", person=True)
CALLER = "00-0af7651916cd43dd8448eb211c80319c-{}-01"
ALERT, RUN = "b7ad6b7169203331", "c7ad6b7169203332"
#: The parts of an iteration in which its worker is killed.
PARTS = ("start", "two", "orient", "decide", "complete")


@contextmanager
def collector(sink: Sink, folder: Path) -> Iterator[str]:
    """A collector that hands on to *sink*; its URL."""
    port = free_port()
    program = Path(rotel.__file__).with_name("rotel-agent")
    receives = ["--otlp-http-endpoint", f"127.0.0.1:{port}"]
    receives += ["--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}"]
    sends = ["--exporter", "otlp", "--otlp-exporter-protocol", "http"]
    sends += ["--otlp-exporter-endpoint", sink.url, "--batch-timeout", "100ms"]
    with (folder / "collector.log").open("w") as log:
        process = subprocess.Popen(
            [program, "start", *receives, *sends], stdout=log, stderr=log, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _listens(url), 20)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _listens(url: str) -> bool:
    try:
        requests.get(url, timeout=5)
    except requests.RequestException:
        return False
    return True


class World:
    """Two workers, and another one for each that is killed."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._number = 0
        for _ in range(2):
            self.start()

    def start(self) -> None:
        """Start a further worker."""
        self._number += 1
        self.deployment.worker(f"w{self._number}", AGENTS[0], "--agent", AGENTS[1])

    def hold(self, part: str) -> Path:
        """Let workers wait in that part."""
        hold = Path(f"{self.deployment.effects_file}.hold.{part}")
        hold.touch()
        return hold

    def kill_in(self, part: str, iteration: int | None, hold: Path) -> None:
        """Kill the worker that is in that part of the iteration, if any; start another."""

        def line() -> str | None:
            lines = self.deployment.effects()
            return next((text for text in lines if text.startswith(f"{part}:{iteration}:")), None)

        pid = int(wait_until(line, 20).rpartition(":")[2])
        names = {process.pid: name for name, process in self.deployment.processes.items()}
        self.deployment.kill(names[pid])
        hold.unlink()
        self.start()


def spans_named(spans: list[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


def submit(deployment: Deployment) -> None:
    """Send an alert and a run, each with the span of its sender."""
    api = f"{deployment.api('api')}/api/v0/agents/careful"
    key = deployment.key("ann", "trigger", "runs")
    alert = {"source": "disk", "severity": "error", "data": {}}
    run = {"title": "Disk full", "description": "Since noon."}
    for path, span, body in (("intake/json", ALERT, alert), ("runs", RUN, run)):
        headers = key | {"traceparent": CALLER.format(span)}
        answer = requests.post(f"{api}/{path}", json=body, headers=headers, timeout=30)
        assert answer.ok, answer.text


def trace_named(deployment: Deployment, agent: str, iteration: int) -> int:
    name = deployment.ended(agent, iteration).id.partition(":")[2]
    return TraceIds("boyd", agent).trace(f"iteration:{name}")


def links(span: Span) -> dict[str, str]:
    return {to.why: f"{to.span_id:016x}" for to in span.links}


def outline(spans: list[Span], trace: int) -> list[str]:
    """The spans of a trace; a slow machine may lose a lease more often than the test takes it."""
    return [line for line, _ in groupby(tree(span for span in spans if span.trace_id == trace))]


def test_one_trace_from_the_alert_to_the_effect_while_workers_are_killed_in_every_phase(
    deployment: Deployment, tmp_path: Path
) -> None:
    with Sink() as sink, collector(sink, tmp_path) as url:
        deployment.environment |= {"BOYD_TRACES__ENDPOINT": url, "BOYD_TIMING__LEASE": "2"}
        world = World(deployment)
        deployment.start("traces", "traces", ready=False)
        wait_until(lambda: read_trace_status(deployment.store.client))
        holds = {part: world.hold(part) for part in (*PARTS, "before")}
        submit(deployment)
        for part in PARTS:
            world.kill_in(part, 1, holds[part])
        trace = trace_named(deployment, "careful", 1)
        wait_until(lambda: [span for span in sink.spans() if span.trace_id == trace])
        # Another process exports what the approval brings.
        deployment.kill("traces")
        deployment.start("other", "traces", ready=False)
        (item,) = deployment.agent("careful").approvals.page(5).pending
        deployment.resolver("careful").answer(item.id, "approved", BOB)
        world.kill_in("before", None, holds["before"])
        # An action whose worker is killed while it acts, and is not repeated.
        launcher = deployment.launcher("traced")
        deployment.ended("traced", launcher.trigger("test").iteration)
        hold = world.hold("act")
        launcher.trigger("test")
        world.kill_in("act", 2, hold)
        acted = trace_named(deployment, "traced", 2)
        wait_until(lambda: [span for span in sink.spans() if span.trace_id == acted], 40)
        wait_until(lambda: spans_named(sink.spans(), "approval traced:act"))
        spans = sink.spans()

    check(spans)
    assert outline(spans, trace) == [
        "iteration",
        "  run",
        "  start (lease_lost)",
        "  start",
        "  observe",
        "    observe batch (lease_lost)",
        "    observer traced:one",
        "    observer traced:two",
        "    observer traced:three",
        "  orient (lease_lost)",
        "  orient",
        "  decide (lease_lost)",
        "  decide",
        "  act",
        "  complete (lease_lost)",
        "  complete",
    ]
    (approval,) = spans_named(spans, "approval traced:act")
    assert outline(spans, approval.trace_id) == [
        "approval traced:act",
        "  attempt (lease_lost)",
        "  action traced:act",
    ]
    links_of = {
        span.name: links(span) for span in spans if span.trace_id in (trace, approval.trace_id)
    }
    root = next(span for span in spans_named(spans, "iteration") if span.trace_id == trace)
    assert links_of["iteration"] == {"intake": ALERT}
    assert links_of["run"] == {"run": RUN}
    assert links_of["act"] == {"approval": f"{approval.span_id:016x}"}
    assert links_of["approval traced:act"] == {"iteration": f"{root.span_id:016x}"}
    assert [line for line in outline(spans, acted) if "act" in line] == [
        "  act (lease_lost)",
        "    action traced:act (lease_lost)",
        "  act",
    ]
