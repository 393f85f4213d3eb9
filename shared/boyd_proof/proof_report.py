"""The report of a proof: scores of agents against labels, and what a plot of them needs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boyd.models import Model
from boyd.models.base import Timestamp
from boyd.models.situation import NumberSeries

#: The counting of a label. `outside`: it lies outside the recorded time; `gap`: no iteration of its
#: time was recorded.
LabelState = Literal["counted", "outside", "gap"]
#: The detection of a label by an agent: `unknown`: none of its iterations can be told.
Detection = Literal["detected", "missed", "unknown"]


class Label(Model):
    """A time in which something was wrong.

    Attributes:
        start: when it began.
        end: when it was over; absent: it still goes on.
        target: a pattern of the resource, if only anomalies of it detect the label.
        type: a pattern of the anomaly's type, likewise.
        source: where it was read, such as `line 3`.
    """

    start: Timestamp
    end: Timestamp | None = None
    target: str | None = None
    type: str | None = None
    source: str = ""


class LabelDetection(Model):
    """The detection of a label by an agent; `delay` has the seconds until then, if known."""

    detection: Detection
    delay: float | None = None


class ScoredLabel(Model):
    """A label, how it counts, and what each agent made of it, by name.

    `merged` is the number of labels that it stands for, because they overlap.
    """

    label: Label
    state: LabelState = "counted"
    merged: int = 1
    agents: dict[str, LabelDetection] = Field(default_factory=dict)


class Alarm(Model):
    """Consecutive iterations with an anomaly.

    Attributes:
        start: the first of them.
        end: the last of them.
        target: the resource, if labels tell resources apart.
        type: the type of the anomaly, if labels tell types apart.
        verdict: `true`: it belongs to a label; `uncounted`: only to labels that do not count.
    """

    start: Timestamp
    end: Timestamp
    target: str = ""
    type: str = ""
    verdict: Literal["true", "false", "uncounted"] = "false"


class DetectionScores(Model):
    """The scores of a period; an absent one is undefined, because it would divide by zero.

    Attributes:
        labels: those that count, and of which something can be told.
        detected: those with an alarm.
        alarms: those that count.
        true_alarms: those that belong to a label.
        weeks: the recorded time of which something can be told.
        precision: the share of alarms that are true.
        recall: the share of labels that were detected.
        f1: the harmonic mean of both; 0 if there are labels and nothing was detected.
        delay_median: seconds until a label was detected.
        delay_p90: the delay that nine of ten do not exceed.
        false_alarms_per_week: alarms that belong to no label.
        pages: times that a person was asked to approve an action.
        pages_per_week: the same in a week.
    """

    labels: int
    detected: int
    alarms: int
    true_alarms: int
    weeks: float
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None
    delay_median: float | None = None
    delay_p90: float | None = None
    false_alarms_per_week: float | None = None
    pages: int = 0
    pages_per_week: float | None = None


class ActionRuns(Model):
    """An action that an agent would have run, or asked for.

    Attributes:
        action: its id.
        alone: iterations in which it would have run without a person.
        asked: those in which a person would have been asked.
        same: those in which the recorded agent executed it with the same params.
        outcomes: the verified outcomes of these, by verdict; `not verified`: there is none.
    """

    action: str
    alone: int = 0
    asked: int = 0
    same: int = 0
    outcomes: dict[str, int] = Field(default_factory=dict)


class AgentProof(Model):
    """One agent, scored.

    Attributes:
        name: `recorded`, `present` or `changed`.
        build: the id of its build; absent: that of the record.
        iterations: the number of all.
        unknown_detections: those in which it cannot be told whether there is an anomaly.
        unknown_decisions: those in which it cannot be told what would be done.
        diverged: those that rest on what the agent would have left in its state.
        reasons: why it cannot be told, with the number of iterations, the most frequent first.
        alarm_share: the share of the time in which an alarm was on.
        scores: of the whole period.
        actions: what it would have done, by action.
        alarms: its alarms, oldest first, as far as the plot needs them.
    """

    name: str
    build: str | None = None
    iterations: int = 0
    unknown_detections: int = 0
    unknown_decisions: int = 0
    diverged: int = 0
    reasons: dict[str, int] = Field(default_factory=dict)
    alarm_share: float | None = None
    scores: DetectionScores
    actions: list[ActionRuns] = Field(default_factory=list)
    alarms: list[Alarm] = Field(default_factory=list)


class RecordGap(Model):
    """A time without iterations."""

    start: Timestamp
    end: Timestamp


class SweepPoint(Model):
    """A value of a swept option, with the scores of the whole period and of both parts."""

    value: float
    whole: DetectionScores
    chosen_on: DetectionScores | None = None
    held_out: DetectionScores | None = None
    unknown_detections: int = 0


class Recommendation(Model):
    """A value that was chosen on the earlier weeks, and what it scores on the later ones.

    Attributes:
        value: the recommended one.
        low: the lowest of the values beside it that cannot be distinguished from it.
        high: the highest of them.
        split: where the earlier weeks end.
        chosen_f1: its F1 on the weeks on which it was chosen; too good on average.
        held_out_f1: that on the later weeks.
        held_out_low: the lower end of a 90 % interval of it.
        held_out_high: the upper end.
        present: the value that the agent has now, if it has one.
        present_f1: the F1 of that on the later weeks, if it was tried.
    """

    value: float
    low: float
    high: float
    split: Timestamp
    chosen_f1: float
    held_out_f1: float
    held_out_low: float
    held_out_high: float
    present: float | None = None
    present_f1: float | None = None


class Sweep(Model):
    """An option at several values; without a recommendation, `refusal` says why."""

    option: str
    points: list[SweepPoint]
    recommendation: Recommendation | None = None
    refusal: str | None = None


class ProofReport(Model):
    """A proof of one agent.

    Attributes:
        agent_id: the agent.
        since: the first recorded iteration.
        until: the last one.
        iterations: the number of recorded iterations.
        weeks: the recorded time without gaps.
        gap_after: seconds without an iteration from which a gap is one.
        gaps: the longest of them, in order.
        gap_count: the number of all.
        gap_time: their seconds.
        tolerance: seconds by which an alarm may begin before or after a label.
        labels: all labels, oldest first.
        agents: the agents side by side.
        series: numbers that observations had.
        sweep: an option at several values.
    """

    agent_id: str
    since: Timestamp
    until: Timestamp
    iterations: int
    weeks: float
    gap_after: float
    gaps: list[RecordGap] = Field(default_factory=list)
    gap_count: int = 0
    gap_time: float = 0.0
    tolerance: float
    labels: list[ScoredLabel]
    agents: list[AgentProof] = Field(default_factory=list)
    series: list[NumberSeries] = Field(default_factory=list)
    sweep: Sweep | None = None


class PublishedProof(Model):
    """A report in the console: who published it, and when."""

    report: ProofReport
    by: str
    at: Timestamp
