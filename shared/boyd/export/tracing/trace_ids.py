"""Ids of traces and spans, derived from the names of work, and sampling by them."""

from __future__ import annotations

import hashlib

from boyd import naming
from boyd.models import LoopResult
from boyd.settings.traces_settings import TracesSettings

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
    """The address of an iteration's trace; None: there is none, or it is not exported."""
    name = iteration_trace(result.id.removeprefix(f"{result.agent_id}:"))
    trace = TraceIds(settings.deployment, result.agent_id).trace(name)
    if settings.link is None or not is_sampled(trace, settings.ratio):
        return None
    return settings.link.replace("{trace_id}", f"{trace:032x}")


def trace_of_execution(execution: str) -> str:
    """The name of the trace that has the span of an execution.

    What an iteration, a procedure or an approval executes is in their trace, everything else is in
    one of its own.
    """
    kind, rest = naming.parts(execution)
    if kind == "loop":
        return iteration_trace(rest)
    if kind in ("step", "compensation"):
        return naming.procedure(rest.rpartition(":")[0])
    return execution


def is_sampled(trace_id: int, ratio: float) -> bool:
    """Tell whether to export a trace, in the way of OpenTelemetry's sampler by trace id."""
    return (trace_id & ((1 << _SPAN_BITS) - 1)) < round(ratio * (1 << _SPAN_BITS))
