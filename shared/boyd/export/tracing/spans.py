"""Spans of one trace before they are encoded: ids, names of attributes, and sampling."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from boyd import naming
from boyd.models import LoopResult
from boyd.settings.traces_settings import TracesSettings
from boyd.text.trace_context import TraceContext

# The names of spans' attributes: all in one place, because many of them are not stable yet.
#
# `gen_ai.*` and `mcp.*` are as in the semantic conventions for generative AI of November 2026,
# whose status is Development.

# Stable
ERROR_TYPE = "error.type"
HOST_NAME = "host.name"
SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"

# In development
AGENT_ID = "gen_ai.agent.id"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
MODEL = "gen_ai.request.model"
OPERATION = "gen_ai.operation.name"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_NAME = "gen_ai.tool.name"
CHAT, EXECUTE_TOOL, INVOKE_AGENT = "chat", "execute_tool", "invoke_agent"
MCP_METHOD = "mcp.method.name"
MCP_CALL = "tools/call"

# Boyd's own
DEPLOYMENT = "boyd.deployment"
AGENT = "boyd.agent"
ITERATION = "boyd.iteration"
TRIGGER = "boyd.trigger"
PHASE = "boyd.phase"
OBSERVER = "boyd.observer"
OBSERVATIONS = "boyd.observations"
BATCH = "boyd.batch"
ATTEMPT = "boyd.attempt"
RETRIES = "boyd.retries"
WORKER = "boyd.worker"
ACTION = "boyd.action"
GATE = "boyd.gate"
PREVENTED = "boyd.prevented"
EXECUTION = "boyd.execution"
STATE = "boyd.state"
VERDICT = "boyd.verdict"
CHECKS = "boyd.checks"
COMPENSATION = "boyd.compensation"
APPROVAL = "boyd.approval"
APPROVALS = "boyd.approvals"
RISK = "boyd.risk"
SEEN = "boyd.seen"
RUN = "boyd.run"
PRIORITY = "boyd.priority"
WAITED = "boyd.waited_ms"
STEP = "boyd.step"
INVESTIGATION = "boyd.investigation"
STEPS = "boyd.steps"
TOOL_CALLS = "boyd.tool_calls"
REQUESTS = "boyd.requests"
LINK = "boyd.link"

# Values of `error.type`
LEASE_LOST = "lease_lost"
FAILED = "failed"


_SPAN_BITS = 64


class TraceIds:
    """The ids of one agent's traces in a deployment."""

    def __init__(self, deployment: str, agent_id: str) -> None:
        self.deployment = deployment
        self.agent_id = agent_id

    def trace(self, name: str) -> int:
        """The id of the trace of the work of that name, such as `iteration:4`."""
        return self._digest(16, "trace", name)

    def span(self, name: str, *parts: object) -> int:
        """The id of a span in that trace; without *parts* that of its root."""
        return self._digest(8, "span", name, *map(str, parts))

    def _digest(self, size: int, *parts: str) -> int:
        whole = "\0".join((self.deployment, self.agent_id, *parts))
        digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:size]) or 1


def iteration_trace(name: str) -> str:
    """The name of the trace of an iteration, as `naming.iteration` names it."""
    return f"iteration:{name}"


def trace_link(settings: TracesSettings, result: LoopResult) -> str | None:
    """The address of an iteration's trace, if it is exported and traces have addresses."""
    name = iteration_trace(result.id.removeprefix(f"{result.agent_id}:"))
    trace = TraceIds(settings.deployment, result.agent_id).trace(name)
    if settings.link is None or not is_sampled(trace, settings.ratio):
        return None
    return settings.link.replace("{trace_id}", f"{trace:032x}")


def trace_of_execution(execution: str) -> str:
    """The name of the trace that has the span of an execution.

    What an iteration, a procedure or an approval executes is in their trace, everything else is in
    one of its own, also the targets of a step: there may be thousands.
    """
    kind, rest = naming.parts(execution)
    if kind == "loop":
        return iteration_trace(rest)
    if kind in ("step", "compensation"):
        procedure, _, step = rest.rpartition(":")
        return execution if naming.is_target(step) else naming.procedure(procedure)
    return execution


def is_sampled(trace_id: int, ratio: float) -> bool:
    """Decide whether to export a trace, as OpenTelemetry's sampler by trace id does."""
    return (trace_id & ((1 << _SPAN_BITS) - 1)) < round(ratio * (1 << _SPAN_BITS))


Kind = Literal["internal", "client", "consumer"]
Value = str | int | float | bool | Sequence[str]
#: The parts of a span's id within its trace; none: the root.
Key = tuple[object, ...]
ROOT: Key = ()


@dataclass(frozen=True)
class SpanLink:
    """A link to another span; `why` says what that is: `run`, `intake`, `approval` ..."""

    trace_id: int
    span_id: int
    why: str


@dataclass(frozen=True)
class Span:
    """A span; times are in milliseconds since the epoch, `error` is the value of `error.type`."""

    trace_id: int
    span_id: int
    parent_id: int | None
    name: str
    start: float
    end: float
    kind: Kind = "internal"
    attributes: Mapping[str, Value] = field(default_factory=dict)
    links: Sequence[SpanLink] = ()
    error: str | None = None


class Trace:
    """Collects spans of the trace of that name; equal keys are numbered."""

    def __init__(self, ids: TraceIds, name: str) -> None:
        self.ids = ids
        self.name = name
        self.spans: list[Span] = []
        self._used: dict[Key, int] = {}

    def add(
        self,
        key: Key,
        name: str,
        times: tuple[float, float],
        attributes: Mapping[str, Value | None],
        *,
        parent: Key | None = ROOT,
        kind: Kind = "internal",
        links: Sequence[SpanLink] = (),
        error: str | None = None,
    ) -> Key:
        """Add a span below the one with the key *parent*; return its key.

        The root has no *parent*, whatever is given; absent attributes are left out.
        """
        number = self._used[key] = self._used.get(key, 0) + 1
        own = key if number == 1 else (*key, number)
        present = {name: value for name, value in attributes.items() if value is not None}
        if error:
            present[ERROR_TYPE] = error
        above = None if own == ROOT or parent is None else self.ids.span(self.name, *parent)
        self.spans.append(
            Span(
                trace_id=self.ids.trace(self.name),
                span_id=self.ids.span(self.name, *own),
                parent_id=above,
                name=name,
                start=times[0],
                end=max(times),
                kind=kind,
                attributes={
                    DEPLOYMENT: self.ids.deployment,
                    AGENT: self.ids.agent_id,
                    **present,
                },
                links=links,
                error=error,
            )
        )
        return own

    def link_to(self, reason: str, name: str, key: Key = ROOT) -> SpanLink:
        """A link to a span of the trace of that name."""
        return SpanLink(self.ids.trace(name), self.ids.span(name, *key), reason)


def foreign_link(context: TraceContext | None, reason: str) -> list[SpanLink]:
    """A link to a span of another system, if there is one."""
    return [SpanLink(context.trace_id, context.span_id, reason)] if context else []


def ms(time: datetime) -> float:
    """A time in milliseconds since the epoch."""
    return time.timestamp() * 1000
