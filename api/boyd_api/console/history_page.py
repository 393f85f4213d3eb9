"""The past of an agent: its iterations, the flight record of each, and its latest replay."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from flask import Response, request

from boyd.export.tracing.spans import trace_link
from boyd.models import (
    SEVERITIES,
    AuditEntry,
    ExecutionEntry,
    LoopResult,
    Observation,
    Phase,
    tape,
)
from boyd.models.responses import IterationList, IterationSummary, outcome, outcome_kind
from boyd.store.hashes import reading
from boyd_api.console.agent_page import read_vital_signs
from boyd_api.console.charts import SHAPES, WIDTH, WORDS, chart
from boyd_api.console.declared_pages import PageResult, Pages
from boyd_api.console.page_request import PageRequest, Part, read_filter, read_part
from boyd_api.console.rendering import ms, render_page
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.routes import loop_routes
from boyd_api.routes.loop_routes import HistoryQuery

pages = Pages()
replay_pages = Pages(section="replay")

#: Iterations on one page.
_SHOWN = "50"


@dataclass(frozen=True)
class HistoryRow:
    """An iteration of the list.

    Attributes:
        name: what follows the agent in its id; it names the iteration's page.
        shape: the shape of its outcome, and `word` the word for it.
        text: the outcome in full; empty if nothing was done.
    """

    iteration: IterationSummary
    name: str
    shape: str
    word: str
    text: str


@pages.get("/agents/<agent>/history")
def history(page: PageRequest) -> PageResult:
    """Show the iterations that match, newest first."""
    filter = read_filter(page, HistoryQuery, limit=_SHOWN)
    part = _read(page, filter.query)
    rows = [_row(summary) for summary in part.value.iterations] if part.value else []
    nothing = not rows and filter.is_open and not part.why
    return render_page(
        page,
        "history.html",
        filter=filter,
        problem=filter.problem or part.why,
        found=part.value,
        rows=rows,
        is_first="cursor" not in request.args,
        health=read_vital_signs(page, page.agent_id) if nothing else [],
        catalog=page.ctx.agent.entry.catalog,
    )


def _read(page: PageRequest, query: HistoryQuery | None) -> Part[IterationList]:
    """The iterations, or why they cannot be read; neither without a query."""
    return Part(None) if query is None else read_part(lambda: loop_routes.history(page.ctx, query))


def _row(summary: IterationSummary) -> HistoryRow:
    name = (summary.id or "").partition(":")[2] or str(summary.iteration)
    kind = outcome_kind(summary)
    text = "" if kind == "idle" else outcome(summary)
    return HistoryRow(summary, name, SHAPES[kind], WORDS[kind], text)


#: Sources of observations that are shown, and observations of each.
_SOURCES = 100
_EACH = 10
#: The largest record that the page offers to copy, in characters.
_COPIED = 200_000
_NUMBER = re.compile(r"[1-9][0-9]{0,15}")


@dataclass(frozen=True)
class SourceGroup:
    """The observations of one source, the first few with their data; the worst one's severity."""

    source: str
    worst: str
    shown: Sequence[Observation]
    number: int


@pages.get("/agents/<agent>/iterations/<name>")
def iteration(page: PageRequest, name: str) -> PageResult:
    """Show the record of an iteration, or of the one in flight as far as it is."""
    result, in_flight = _find(page, name)
    groups = _by_source(result.observations)
    text = result.to_json()
    execution = read_part(
        lambda: page.ctx.agent.past_work.execution(loop_routes.execution_name(result))
    )
    return render_page(
        page,
        "flight_record.html",
        result=result,
        in_flight=in_flight,
        name=name,
        chart=chart(result),
        width=WIDTH,
        groups=groups[:_SOURCES],
        more_groups=len(groups) - _SOURCES,
        newest=page.ctx.agent.store.loop_control.iteration(),
        entries=_entries(page, result),
        execution=execution,
        is_open=_is_open(execution.value),
        other=_other(page, result),
        trace_link=None if in_flight else trace_link(page.ctx.services.settings.traces, result),
        copied=text if len(text) <= _COPIED else "",
        kind=outcome_kind(result),
        outcome_words=WORDS,
        outcome_shapes=SHAPES,
    )


def _is_open(execution: ExecutionEntry | None) -> bool:
    """Check whether something is still to become of what the iteration has started."""
    if execution is None or execution.verification is None:
        return execution is not None and execution.state == "running"
    compensation = execution.verification.compensation
    return execution.verification.verdict is None or (
        compensation is not None and compensation.state == "asked"
    )


@pages.get("/agents/<agent>/iterations/<name>/record.json")
def record(page: PageRequest, name: str) -> PageResult:
    """The record as JSON, as the API gives it."""
    return Response(_find(page, name)[0].to_json(), mimetype="application/json")


def _find(page: PageRequest, name: str) -> tuple[LoopResult, bool]:
    """The iteration, and True if it is in flight. Raises `HttpProblem` if there is none."""
    store, now = page.ctx.agent.store, page.ctx.now or page.ctx.agent.store.clock.now()
    current = store.history.last()
    is_asked = current is not None and name in (str(current.iteration), current.id)
    if current and is_asked and store.history.get(current.iteration) is None:
        with reading(f"iteration {current.iteration}"):
            return current.result(store.agent_id, now), True
    try:
        return loop_routes.one(page.ctx, name), False
    except HttpProblem as problem:
        if problem.kind.name != "not-found":
            raise
        raise not_found(_absence(name, store.loop_control.iteration())) from None


def _absence(name: str, newest: int) -> str:
    number = name.partition(".")[0]
    if not _NUMBER.fullmatch(number):
        return f"{name!r} is not the number of an iteration"
    if int(number) > newest:
        return f"there was no iteration {number} yet; the newest is {newest}"
    return f"iteration {name} is no longer kept: history keeps the latest ones"


def _by_source(observations: Sequence[Observation]) -> list[SourceGroup]:
    """The observations by source, the worst first."""
    by_source: dict[str, list[Observation]] = {}
    for observation in observations:
        by_source.setdefault(observation.source, []).append(observation)
    groups = [
        SourceGroup(
            source, max((o.severity or "" for o in all), key=_weight), all[:_EACH], len(all)
        )
        for source, all in by_source.items()
    ]
    return sorted(groups, key=lambda group: -_weight(group.worst))


def _weight(severity: str) -> int:
    severities: Sequence[str] = SEVERITIES
    return severities.index(severity) if severity in severities else -1


def _entries(page: PageRequest, result: LoopResult) -> Part[list[AuditEntry]]:
    """The audit entries of the iteration, its actions, and the approvals that it asked for."""
    if not page.allows("admin"):
        return Part(None, "your key lacks the scope 'admin'")
    return read_part(lambda: loop_routes.audit_entries(page.ctx, result))


def _other(page: PageRequest, result: LoopResult) -> dict[str, object]:
    """The iteration to compare with, if one is asked for, and how it differs."""
    name = request.args.get("with", "").strip()
    if not name:
        return {}
    part = read_part(lambda: _find(page, name)[0])
    sections = compare(result, part.value) if part.value else []
    return {"name": name, "result": part.value, "why": part.why, "sections": sections}


#: The most differences of a section that are shown, and characters of a value.
_COMPARED = 40
_VALUE = 400

#: Values by name.
_Facts = Mapping[str, str]


@dataclass(frozen=True)
class Difference:
    """A value that differs; empty where an iteration has none."""

    name: str
    here: str
    there: str


@dataclass(frozen=True)
class Section:
    """The differences of one kind; `more` are not shown."""

    title: str
    differences: list[Difference]
    more: int


def compare(here: LoopResult, there: LoopResult) -> list[Section]:
    """The differences between two iterations, section by section and by name."""
    kinds = {
        "Observations": _observations,
        "Situation": _situation,
        "Decision": _decision,
        "Durations": _durations,
        "Agent and plugins": _builds,
    }
    return [
        _section(title, dict(facts(here)), dict(facts(there))) for title, facts in kinds.items()
    ]


def _section(title: str, here: _Facts, there: _Facts) -> Section:
    names = [*here, *(name for name in there if name not in here)]
    # The data of an observation that one iteration lacks are not listed one by one.
    single = here.keys() ^ there.keys()
    differences = [
        Difference(name, here.get(name, ""), there.get(name, ""))
        for name in names
        if here.get(name) != there.get(name) and name.rpartition(": ")[0] not in single
    ]
    return Section(title, differences[:_COMPARED], max(0, len(differences) - _COMPARED))


def _observations(result: LoopResult) -> Iterator[tuple[str, str]]:
    times: Counter[str] = Counter()
    for observation in result.observations:
        times[observation.source] += 1
        name = (
            observation.source
            if times[observation.source] == 1
            else f"{observation.source} ({times[observation.source]})"
        )
        yield name, observation.severity or "seen"
        for key, value in observation.data.items():
            yield f"{name}: {key}", _text(value)


def _situation(result: LoopResult) -> Iterator[tuple[str, str]]:
    situation = result.situation
    if situation is None:
        return
    yield "summary", _text(situation.summary)
    yield "priority", situation.priority
    yield "confidence", f"{situation.confidence:.2f}"
    for assessment in situation.assessments:
        yield assessment.source, _text("; ".join(assessment.findings))
    for anomaly in situation.anomalies:
        yield f"anomaly: {anomaly.type}", _text(f"{anomaly.severity}: {anomaly.description}")


def _decision(result: LoopResult) -> Iterator[tuple[str, str]]:
    if result.trace:
        yield "strategy", result.trace.chosen or "none chosen"
        for verdict in result.trace.verdicts:
            yield verdict.strategy, f"{verdict.verdict}: {_text(verdict.why)}"
    if result.decision:
        yield "action", result.decision.action
        yield "rationale", _text(result.decision.rationale)
        for key, value in result.decision.params.items():
            yield f"param {key}", _text(value)
    yield "outcome", _text(outcome(result))


def _durations(result: LoopResult) -> Iterator[tuple[str, str]]:
    yield "whole iteration", ms(result.duration)
    for phase in get_args(Phase):
        if phase in result.phases:
            yield phase, ms(result.phases[phase])


def _builds(result: LoopResult) -> Iterator[tuple[str, str]]:
    for build in result.builds[:1]:
        yield "settings", build.settings
        yield "Boyd", build.boyd
        for plugin in build.plugins:
            yield plugin.id, plugin.version or plugin.digest or "unknown"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE else f"{text[:_VALUE]}…"


#: The mark of each difference.
_DIFFERENCES = {
    "newly automatic": "warning",
    "newly refused": "failed",
    "missing action": "failed",
    "error": "failed",
    "cannot tell": "unknown",
}


@replay_pages.get("/agents/<agent>/replay")
def latest_replay(page: PageRequest) -> PageResult:
    """Show what a changed agent would have decided, by the latest replay that was published.

    The differences come by action, then the iterations.
    """
    part = read_part(page.ctx.agent.store.latest_replay.read)
    return render_page(
        page,
        "replay.html",
        problem=part.why,
        found=part.value,
        kinds=get_args(tape.Difference),
        shapes=_DIFFERENCES,
    )
