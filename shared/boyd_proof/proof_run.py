"""Runs a proof: replays recorded iterations with each agent, and scores all of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice, tee
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

from boyd import naming
from boyd.errors import ConfigError
from boyd.export.observed_series import ObservedSeries
from boyd.models import LoopResult
from boyd.models.tape import ReplayedIteration
from boyd_proof.agent_record import NOT_VERIFIED, AgentRecord
from boyd_proof.proof_report import (
    AgentProof,
    Alarm,
    Label,
    ProofReport,
    RecordGap,
    ScoredLabel,
)
from boyd_proof.scores import LabelSpan, Matches, distinction_of, match, spans_of
from boyd_proof.timeline import WEEK, Timeline

if TYPE_CHECKING:
    # They load SQLAlchemy.
    from boyd.export.archive.merged_work import MergedWork
    from boyd.replay.recordings import Recordings
    from boyd.replay.shadow_process import ShadowTask

#: Records in a portion that is read again.
_PORTION = 64
#: Seconds by which an iteration may seem to be older than the one before it.
_DISORDER = 60.0
#: The most alarms of an agent, and gaps, that a report has.
_ALARMS, _GAPS = 500, 100

#: Is told the number of iterations that were replayed.
Progress = Callable[[int], object]


@dataclass(frozen=True)
class Contestant:
    """An agent that is replayed."""

    name: str
    task: ShadowTask


@dataclass(frozen=True)
class Outcome:
    """The verdict on an execution, and when it was given."""

    verdict: str
    at: datetime | None = None


@dataclass
class ProofMaterial:
    """All that the replays gave.

    Attributes:
        agent_id: the agent.
        times: those of the iterations.
        recorded: the agent as it was; absent: nothing was decided then.
        replayed: the contestants, in their order.
        series: numbers that observations had.
        verified: labels for the faults that Boyd has ended.
    """

    agent_id: str = ""
    times: array[float] = field(default_factory=lambda: array("d"))
    recorded: AgentRecord | None = None
    replayed: list[AgentRecord] = field(default_factory=list)
    series: ObservedSeries = field(default_factory=ObservedSeries)
    verified: list[Label] = field(default_factory=list)
    outcomes: dict[int, Outcome] = field(default_factory=dict)


class ProofReplay:
    """Replays recordings with several agents, as many side by side as there are *jobs*."""

    def __init__(
        self,
        recordings: Recordings,
        jobs: int,
        progress: Progress,
        work: MergedWork | None = None,
        *,
        is_recorded: bool = True,
    ) -> None:
        """Replay *recordings*; *work* has the verdicts on what was executed then.

        Unless *is_recorded*, nothing was decided then.
        """
        self._recordings = recordings
        self._jobs = jobs
        self._progress = progress
        self._work = work
        self._material = ProofMaterial()
        if is_recorded:
            self._material.recorded = AgentRecord("recorded")
        self._alarm_since: datetime | None = None

    def run(self, contestants: Sequence[Contestant]) -> ProofMaterial:
        """Replay all, the first of whom is the present agent.

        Raises:
            ConfigError: there are no iterations, or they are not in order.
            ReplayError: an agent cannot be loaded, or a record cannot be read.
        """
        with TemporaryFile("w+", encoding="utf-8", errors="surrogateescape") as spool:
            for first in range(0, len(contestants), self._jobs):
                some = contestants[first : first + self._jobs]
                # What was recorded may be removed meanwhile: all replay the same.
                portions = self._read_spool(spool) if first else self._write_spool(spool)
                self._replay(some, portions, is_first=first == 0)
        if not self._material.times:
            raise ConfigError("no iteration was recorded in that time: give an earlier --since")
        return self._material

    def _write_spool(self, spool: IO[str]) -> Iterator[list[str]]:
        """The recordings in portions, which are kept in a file."""
        for portion in self._recordings.portions():
            spool.writelines(f"{text}\n" for text in portion)
            yield portion

    def _read_spool(self, spool: IO[str]) -> Iterator[list[str]]:
        """The recordings of the file."""
        spool.seek(0)
        while portion := [line.rstrip("\n") for line in islice(spool, _PORTION)]:
            yield portion

    def _replay(
        self, contestants: Sequence[Contestant], portions: Iterable[list[str]], is_first: bool
    ) -> None:
        from boyd.replay.replay_run import ShadowPool

        with ExitStack() as stack:
            # In order, each goes on from the state that it has left itself.
            tasks = [item.task.patched({"closed_loop": True}) for item in contestants]
            pools = [stack.enter_context(ShadowPool(task, 1)) for task in tasks]
            self._material.agent_id = pools[0].hello.agent_id
            agents = [
                AgentRecord(item.name, pool.hello.build)
                for item, pool in zip(contestants, pools, strict=True)
            ]
            self._material.replayed += agents
            texts, *inputs = tee(portions, len(pools) + 1)
            answers = (pool.judge(items) for pool, items in zip(pools, inputs, strict=True))
            index = 0
            for portion, *judgements in zip(texts, *answers, strict=True):
                for text, *row in zip(portion, *judgements, strict=True):
                    if is_first:
                        self._add_recorded(index, LoopResult.from_json(text), row[0])
                    self._add_replayed(index, agents, row)
                    index += 1
                self._progress(len(portion) * len(agents))

    def _add_recorded(self, index: int, record: LoopResult, present: ReplayedIteration) -> None:
        """Add what was recorded; the present agent knows the targets of actions."""
        material = self._material
        time = _time_of(record)
        if material.times and time < material.times[-1]:
            if material.times[-1] - time > _DISORDER:
                raise ConfigError(
                    f"iteration {record.id} is older than the one before it: sort the records"
                )
            time = material.times[-1]
        material.times.append(time)
        material.series.add(time, record.observations)
        if material.recorded is None:
            return
        outcome = self._outcome(record)
        if outcome is not None:
            material.outcomes[index] = outcome
        material.recorded.add_recorded(time, record, present.before)
        verdict = outcome.verdict if outcome else None
        material.recorded.add_action(present.before, present.before, verdict)
        self._note_fault(datetime.fromtimestamp(time, UTC), record, outcome)

    def _add_replayed(
        self, index: int, agents: Sequence[AgentRecord], row: Sequence[ReplayedIteration]
    ) -> None:
        time, outcome = self._material.times[index], self._material.outcomes.get(index)
        for agent, replayed in zip(agents, row, strict=True):
            agent.add_replayed(time, replayed)
            is_known = "cannot tell" not in replayed.differences
            verdict = outcome.verdict if outcome else None
            agent.add_action(replayed.after if is_known else None, replayed.before, verdict)

    def _note_fault(self, time: datetime, record: LoopResult, outcome: Outcome | None) -> None:
        """Note a label if an execution was effective: from the beginning of the alarm on."""
        if record.situation is not None:
            if not record.situation.anomalies:
                self._alarm_since = None
            elif self._alarm_since is None:
                self._alarm_since = time
        if outcome is None or outcome.verdict != "effective":
            return
        start = self._alarm_since or time
        self._material.verified.append(
            Label(start=start, end=max(outcome.at or time, start), source=record.id)
        )

    def _outcome(self, record: LoopResult) -> Outcome | None:
        """The outcome of the recorded execution; None if there was none."""
        result = next(iter(record.action_results), None)
        if result is None or result.prevented:
            return None
        name = naming.iteration_execution(record.id.partition(":")[2])
        if result.waits_for:
            item = self._work.approval(result.waits_for) if self._work else None
            if item is None or item.status != "approved":
                return None
            name = naming.approval(item.id)
        entry = self._work.execution(name) if self._work else None
        verification = entry.verification if entry else None
        if verification is None or verification.verdict is None:
            return Outcome(NOT_VERIFIED)
        return Outcome(verification.verdict, verification.ended_at)


def _time_of(record: LoopResult) -> float:
    """The time at which an iteration had observed everything, in seconds."""
    runs = [run for run in record.phase_runs if run.phase == "orient" and not run.lost]
    if not runs:
        return record.ended_at.timestamp()
    return (record.started_at + timedelta(milliseconds=runs[-1].offset)).timestamp()


@dataclass(frozen=True)
class Judge:
    """Scores material against labels.

    Attributes:
        tolerance: seconds by which an alarm may begin before or after a label.
        gap_after: seconds without an iteration from which there is a gap; absent: by the record.
    """

    material: ProofMaterial
    labels: Sequence[Label]
    tolerance: float
    timeline: Timeline
    spans: Sequence[LabelSpan]

    @classmethod
    def of(
        cls,
        material: ProofMaterial,
        labels: Sequence[Label],
        tolerance: float,
        gap_after: float | None,
    ) -> Judge:
        """A judge of *material*, in which there is a gap after so many seconds."""
        timeline = Timeline(material.times, gap_after)
        spans = spans_of(labels, timeline)
        return cls(material, labels, tolerance, timeline, spans)

    def matches(self, agent: AgentRecord) -> Matches:
        """The alarms of an agent with their labels."""
        distinction = distinction_of(self.labels)
        return match(self.timeline, agent.track, self.spans, distinction, self.tolerance)

    def report(self, agents: Iterable[AgentRecord]) -> ProofReport:
        """The report on *agents*."""
        matches = [(agent, self.matches(agent)) for agent in agents]
        gaps = list(self.timeline.gaps())
        longest = sorted(sorted(gaps, key=lambda gap: gap[0] - gap[1])[:_GAPS])
        counted = [(span.start, span.end) for span in self.spans if span.state == "counted"]
        return ProofReport(
            agent_id=self.material.agent_id,
            since=_at(self.timeline.start),
            until=_at(self.timeline.end),
            iterations=len(self.material.times),
            weeks=self.timeline.duration() / WEEK,
            gap_after=self.timeline.gap_after,
            gaps=[RecordGap(start=_at(start), end=_at(end)) for start, end in longest],
            gap_count=len(gaps),
            gap_time=sum(end - start for start, end in gaps),
            tolerance=self.tolerance,
            labels=list(self._labels(matches)),
            agents=[self._proof(agent, match) for agent, match in matches],
            series=self.material.series.most_telling(counted),
        )

    def _labels(self, matches: Sequence[tuple[AgentRecord, Matches]]) -> Iterator[ScoredLabel]:
        for number, span in enumerate(self.spans):
            detections = ((agent.name, match.detections[number]) for agent, match in matches)
            yield ScoredLabel(
                label=span.label.patched({"end": _at(span.end)}) if span.merged > 1 else span.label,
                state=span.state,
                merged=span.merged,
                agents={name: detection for name, detection in detections if detection},
            )

    def _proof(self, agent: AgentRecord, matches: Matches) -> AgentProof:
        total = self.timeline.duration(agent.track.is_known)
        in_alarm = self.timeline.duration(agent.track.is_alarm)
        return AgentProof(
            name=agent.name,
            build=agent.build,
            iterations=len(self.material.times),
            unknown_detections=agent.track.count_unknown(),
            unknown_decisions=agent.unknown_decisions,
            diverged=agent.diverged,
            reasons=dict(agent.reasons.most_common()),
            alarm_share=in_alarm / total if total else None,
            scores=matches.scores(agent.pages),
            actions=list(agent.actions),
            alarms=list(_alarms(matches)),
        )


def _alarms(matches: Matches) -> Iterator[Alarm]:
    """The alarms of a report, the longest ones if there are too many."""
    pairs = list(zip(matches.alarms, matches.verdicts, strict=True))
    if len(pairs) > _ALARMS:
        longest = sorted(pairs, key=lambda pair: pair[0].start - pair[0].end)[:_ALARMS]
        pairs = sorted(longest, key=lambda pair: pair[0].start)
    for alarm, verdict in pairs:
        yield Alarm(
            start=_at(alarm.start),
            end=_at(alarm.end),
            target=alarm.target,
            type=alarm.type,
            verdict="uncounted" if verdict is None else "true" if verdict else "false",
        )


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
