"""The record of an iteration: a hash that the phases write and readers read field by field."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import get_args

from pydantic import TypeAdapter

from boyd import naming
from boyd.models import (
    ActionResult,
    AgentBuild,
    Change,
    Decision,
    DecisionTrace,
    Gate,
    LoopResult,
    NotDue,
    Observation,
    ObserverRun,
    PhaseRun,
    PluginReads,
    Problem,
    Refusal,
    Situation,
    TapedPhase,
    from_ms,
    ms_from,
)
from boyd.models.responses import IterationSummary

#: The most characters of an action's error in a summary.
_MAX_REASON = 200
#: The prefix of fields that describe a batch's run.
_RAN = "ran:"
#: The prefix of fields that say when a batch's tasks began; earlier releases write none.
_AT = "at:"

_problems: TypeAdapter[list[Problem]] = TypeAdapter(list[Problem])
_changes: TypeAdapter[list[Change]] = TypeAdapter(list[Change])
_reads: TypeAdapter[list[PluginReads]] = TypeAdapter(list[PluginReads])
_not_due: TypeAdapter[list[NotDue]] = TypeAdapter(list[NotDue])
_refusals: TypeAdapter[list[Refusal]] = TypeAdapter(list[Refusal])
_results: TypeAdapter[list[ActionResult]] = TypeAdapter(list[ActionResult])
_observations: TypeAdapter[list[Observation]] = TypeAdapter(list[Observation])


@dataclass(frozen=True)
class BatchRun:
    """The run of a batch: its host and worker, and the tasks by index.

    Each task has its number of observations and its duration in ms. `offsets` has for each task, in
    order, the ms since the iteration began. `build` is empty unless it is not the iteration's.
    """

    host: str
    worker: str
    tasks: Mapping[int, tuple[int, float]]
    attempt: int | None = None
    offsets: Sequence[int] = ()
    build: str = ""

    def fields(self, batch: int) -> dict[str, str]:
        """The run as fields of the iteration's hash."""
        place = [self.host, self.worker, self.tasks]
        start = [self.attempt, self.build, *self.offsets]
        return {f"{_RAN}{batch}": _compact(place), f"{_AT}{batch}": _compact(start)}

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Iterator[tuple[int, BatchRun]]:
        """The batch runs in an iteration's hash, by the number of the batch."""
        began = _by_index(fields, _AT)
        for number, text in _by_index(fields, _RAN).items():
            host, worker, tasks = json.loads(text)
            attempt, build, *offsets = json.loads(began.get(number, '[null,""]'))
            durations = {int(index): (n, ms) for index, (n, ms) in tasks.items()}
            yield number, cls(host, worker, durations, attempt, offsets, build)

    def observer_runs(self, batch: int, names: Sequence[str]) -> Iterator[tuple[int, ObserverRun]]:
        """The run of each task, by index; *names* has their observers."""
        offsets: Sequence[int | None] = self.offsets or [None] * len(self.tasks)
        for (index, (count, ms)), offset in zip(self.tasks.items(), offsets, strict=True):
            yield (
                index,
                ObserverRun(
                    id=names[index],
                    host=self.host,
                    worker=self.worker,
                    observations=count,
                    duration=ms,
                    offset=offset,
                    batch=batch,
                    attempt=self.attempt,
                    build=self.build or None,
                ),
            )


class Record:
    """The record of an iteration."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = fields

    @property
    def iteration(self) -> int:
        """The iteration's number."""
        return int(self.fields["iteration"])

    @property
    def id(self) -> str:
        """The iteration's id, unique within its agent even after data loss."""
        return naming.iteration(self.iteration, self.fields.get("timeline", ""))

    @property
    def trigger(self) -> str:
        """The trigger that began the iteration."""
        return self.fields["trigger"]

    @property
    def started_at(self) -> datetime:
        """The start by the Redis server's clock."""
        return from_ms(float(self.fields["startedAt"]))

    @property
    def error(self) -> str | None:
        """The error of a failed iteration."""
        return self.fields.get("error")

    @property
    def abandoned_phase(self) -> str | None:
        """The phase in which the iteration was abandoned, if it was."""
        return self.fields.get("abandoned")

    @property
    def runs(self) -> list[str]:
        """The runs that the iteration investigates."""
        return self.fields.get("runs", "").split()

    @property
    def observers(self) -> list[str]:
        """The observer of each task, by index."""
        observers: list[str] = json.loads(self.fields.get("observers", "[]"))
        return observers

    @property
    def observation_texts(self) -> dict[int, str]:
        """The observations of each task as JSON text, by index."""
        return _by_index(self.fields, "seen:")

    @property
    def observer_errors(self) -> list[Problem]:
        """The tasks that failed and the observers that could not be planned, in order."""
        failed = _by_index(self.fields, "fail:")
        return [Problem.from_json(failed[index]) for index in sorted(failed)]

    @property
    def observer_runs(self) -> list[ObserverRun]:
        """Every completed run of an observer, in order."""
        names = self.observers
        runs: dict[int, ObserverRun] = {}
        for number, run in BatchRun.of(self.fields):
            runs.update(run.observer_runs(number, names))
        return [runs[index] for index in sorted(runs)]

    @property
    def phase_runs(self) -> list[PhaseRun]:
        """Every attempt at a phase, in the order of their ends."""
        lines = self.fields.get("steps", "").splitlines()
        other = {k[8:]: v for k, v in self.fields.items() if k.startswith("buildOf:")}
        return _phase_runs((line.split(" ", 4) for line in lines), other)

    @property
    def build(self) -> str:
        """The id of the build of the agent that started the iteration."""
        return self.fields.get("build", "")

    @property
    def builds(self) -> list[AgentBuild]:
        """The builds of the agent that took part, first the one that started the iteration."""
        texts = [v for k, v in self.fields.items() if k.startswith("build:")]
        builds = map(AgentBuild.from_json, texts)
        return sorted(builds, key=lambda build: build.id != self.build)

    @property
    def intake(self) -> list[Observation]:
        """Observations from outside; repeated ones have their number as `occurrences`."""
        observations = _observations.validate_json(self.fields.get("intake", "[]"), extra="ignore")
        for index, times in json.loads(self.fields.get("intakeTimes", "{}")).items():
            observation = observations[int(index)]
            counted = {**(observation.metadata or {}), "occurrences": times}
            observations[int(index)] = observation.model_copy(update={"metadata": counted})
        return observations

    @property
    def observations(self) -> list[Observation]:
        """All observations, as given to the orienters."""
        texts = self.observation_texts
        own = [
            o
            for index in sorted(texts)
            for o in _observations.validate_json(texts[index], extra="ignore")
        ]
        return own + _observations.validate_json(self.fields.get("added", "[]"), extra="ignore")

    @property
    def problems(self) -> list[Problem]:
        """The failures of components and hooks."""
        return _problems.validate_json(self.fields.get("problems", "[]"), extra="ignore")

    @property
    def not_due(self) -> list[NotDue]:
        """Observers that were skipped because of their intervals."""
        return _not_due.validate_json(self.fields.get("notDue", "[]"), extra="ignore")

    @property
    def blind(self) -> list[str]:
        """Plugins with an observer or orienter that failed or was not due."""
        return self.fields.get("blind", "").split()

    @property
    def blocks(self) -> list[Refusal]:
        """The refusals of guards."""
        return _refusals.validate_json(self.fields.get("blocks", "[]"), extra="ignore")

    @property
    def situation(self) -> Situation | None:
        """The situation, after orient."""
        text = self.fields.get("situation")
        return Situation.from_json(text) if text else None

    @property
    def decision(self) -> Decision | None:
        """The decision, after decide."""
        text = self.fields.get("decision")
        return Decision.from_json(text) if text else None

    @property
    def trace(self) -> DecisionTrace | None:
        """The trace of the decision."""
        text = self.fields.get("trace")
        failures = {
            problem.id: problem.error for problem in self.problems if problem.phase == "decide"
        }
        return DecisionTrace.from_json(text).with_verdicts(failures) if text else None

    @property
    def situation_changes(self) -> list[Change]:
        """The changes that hooks made to the situation."""
        return _changes.validate_json(self.fields.get("situationChanges", "[]"), extra="ignore")

    @property
    def reads(self) -> list[PluginReads]:
        """The reads of components and hooks in orient and decide."""
        texts = [self.fields.get(f"reads:{phase}", "[]") for phase in get_args(TapedPhase)]
        return [reads for text in texts for reads in _reads.validate_json(text, extra="ignore")]

    @property
    def gate(self) -> Gate | None:
        """The fate of the decided action before it was executed."""
        text = self.fields.get("gate")
        return Gate.from_json(text) if text else None

    @property
    def action_results(self) -> list[ActionResult]:
        """The results of the actions."""
        return _results.validate_json(self.fields.get("results", "[]"), extra="ignore")

    def result(self, agent_id: str, ended_at: datetime) -> LoopResult:
        """The iteration's result for clients, only from what this iteration produced."""
        end_ms = float(self.fields["endedAt"]) if "endedAt" in self.fields else None
        ended_at = from_ms(end_ms) if end_ms else ended_at
        return LoopResult(
            id=f"{agent_id}:{self.id}",
            agent_id=agent_id,
            iteration=self.iteration,
            trigger=self.trigger,
            observations=self.observations,
            situation=self.situation,
            decision=self.decision,
            trace=self.trace,
            action_results=self.action_results,
            runs=self.runs,
            success=self.fields.get("success", "0" if self.error else "1") == "1",
            error=self.error,
            duration=ms_from(self.started_at, ended_at),
            started_at=self.started_at,
            ended_at=ended_at,
            phases={k[3:]: float(v) for k, v in self.fields.items() if k.startswith("ms:")},
            phase_runs=self.phase_runs,
            observer_errors=self.observer_errors,
            observer_runs=self.observer_runs,
            not_due=self.not_due,
            blind=self.blind,
            problems=self.problems,
            retries=int(self.fields.get("retries", 0)),
            builds=self.builds,
            situation_changes=self.situation_changes,
            gate=self.gate,
            reads=self.reads,
        )

    def unreadable_result(self, agent_id: str, ended_at: datetime, error: str) -> LoopResult:
        """The failed result of an unreadable record, from the fields that need no parsing."""
        return LoopResult(
            id=f"{agent_id}:{self.id}",
            agent_id=agent_id,
            iteration=self.iteration,
            trigger=self.trigger,
            runs=self.runs,
            success=False,
            error=error,
            duration=ms_from(self.started_at, ended_at),
            started_at=self.started_at,
            ended_at=ended_at,
        )


def build_fields(build: AgentBuild, known_id: str = "", phase: str = "") -> dict[str, str]:
    """The fields that tell of a worker's build, in a record that knows the build with that id.

    None are needed for the same one again. *phase* is the one that the worker ran; empty: start.
    """
    if build.id == known_id:
        return {}
    return {
        f"build:{build.id}": build.to_json(),
        f"buildOf:{phase}" if phase else "build": build.id,
    }


def _phase_runs(steps: Iterable[list[str]], builds: Mapping[str, str]) -> list[PhaseRun]:
    """The attempts, from the words of each line that `with_step.lua` writes.

    *builds* has by phase the builds of workers that differ from that of the iteration.
    """
    runs: list[PhaseRun] = []
    lost: Counter[str] = Counter()
    for phase, offset, duration, mark, worker in steps:
        batch, _, attempt = mark.partition(".")
        fields = {
            "phase": phase,
            "offset": float(offset),
            "duration": float(duration),
            "attempt": int(attempt) if attempt else 1 + lost[phase],
            "host": naming.host_of(worker),
            "worker": worker or None,
            "lost": mark != "-",
            "batch": int(batch) if attempt else None,
            "build": None if mark != "-" else builds.get(phase),
        }
        runs.append(PhaseRun.model_validate(fields))
        lost[phase] += mark == "x"
    return runs


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _by_index(fields: Mapping[str, str], prefix: str) -> dict[int, str]:
    size = len(prefix)
    return {int(key[size:]): value for key, value in fields.items() if key.startswith(prefix)}


def dump_problems(problems: list[Problem]) -> str:
    """Problems as JSON text."""
    return _problems.dump_json(problems, by_alias=True, exclude_none=True).decode()


def dump_changes(changes: list[Change]) -> str:
    """Changes that hooks made as JSON text."""
    return _changes.dump_json(changes, by_alias=True, exclude_none=True).decode()


def dump_reads(reads: list[PluginReads]) -> str:
    """Reads of components and hooks as JSON text."""
    return _reads.dump_json(reads, by_alias=True, exclude_none=True).decode()


def dump_blocks(blocks: list[Refusal]) -> str:
    """Refusals as JSON text."""
    return _refusals.dump_json(blocks, by_alias=True, exclude_none=True).decode()


def dump_not_due(observers: Sequence[NotDue]) -> str:
    """Observers that are not due as JSON text."""
    return _not_due.dump_json(list(observers), by_alias=True).decode()


def dump_results(results: list[ActionResult]) -> str:
    """Action results as JSON text."""
    return _results.dump_json(results, by_alias=True, exclude_none=True).decode()


def summary_of(result: LoopResult) -> IterationSummary:
    """The summary of a whole result."""
    return IterationSummary(
        id=result.id,
        iteration=result.iteration,
        trigger=result.trigger,
        success=result.success,
        error=result.error,
        situation=result.situation.summary if result.situation else None,
        decision=result.decision.action if result.decision else None,
        observations=len(result.observations),
        action_results=len(result.action_results),
        results=list(map(_in_short, result.action_results)),
        runs=result.runs,
        started_at=result.started_at,
        ended_at=result.ended_at,
        duration=result.duration,
    )


def _in_short(result: ActionResult) -> ActionResult:
    """The result without its output, which may be large."""
    waits = {"approvalId": result.waits_for} if result.waits_for else None
    error = result.error[:_MAX_REASON] if result.error else None
    return result.patched({"output": None, "side_effects": None, "metrics": waits, "error": error})
