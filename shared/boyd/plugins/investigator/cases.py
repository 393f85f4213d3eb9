"""What is under investigation, what came of it, and what is to be told; no worker knows more.

It changes by plain functions, so that workers can come in each other's way: whoever was slower
looks again. A change by an iteration that is over, or one that was made already, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pydantic import Field

from boyd.models import (
    LEVELS,
    SEVERITIES,
    Anomaly,
    JsonObject,
    Level,
    Model,
    Severity,
    SituationAssessment,
    Timestamp,
)
from boyd.models.investigation import Investigation
from boyd.plugins.investigator.findings import NONE, AnswerEvidence, InvestigationOutcome

#: Seconds that a pause between two attempts has at most.
LONGEST_PAUSE = 3600.0
#: Attempts for what is not seen any more.
ATTEMPTS = 6
#: Sources that are waited for.
SOURCES = 200


class Case(Model):
    """One situation in one episode.

    Attributes:
        fingerprint: of the situation.
        episode: the last one it was seen in.
        began: the iteration in which it was first investigated.
        attempt: counts from 1.
        severity: the worst of its observations.
        lasting: whether its observations are metrics or states: then it is over when they are.
        retry_at: when a failed attempt is made again; None: this one is under way, or over.
        why: what went wrong with the last attempt.
        failed: the investigation that failed.
        outcome: what came of it.
        ended_at: when that was seen.
        told: the iteration whose assessment told the outcome first.
    """

    fingerprint: str
    episode: int
    began: int
    attempt: int = 1
    severity: Severity
    lasting: bool
    retry_at: Timestamp | None = None
    why: str | None = None
    failed: str | None = None
    outcome: InvestigationOutcome | None = None
    ended_at: Timestamp | None = None
    told: int | None = None

    @property
    def name(self) -> str:
        """Tells it from the same situation in another episode."""
        return f"{self.fingerprint}@{self.began}"

    @property
    def key(self) -> str:
        """Names the investigation of this attempt."""
        return self.name if self.attempt == 1 else f"{self.name}#{self.attempt}"

    @property
    def under_way(self) -> bool:
        """Whether its investigation was begun and has not been seen to end."""
        return self.outcome is None and self.retry_at is None


class CaseMemory(Model):
    """All cases, and the episode that goes on or was the last.

    Attributes:
        iteration: that changed it last.
        episode: the iteration that the episode began in.
        open: whether it goes on.
        seen_at: when something was last seen that had to be investigated.
        sources: of what was seen then.
        begun: how many investigations it has had.
    """

    iteration: int = 0
    episode: int = 0
    open: bool = False
    seen_at: Timestamp | None = None
    sources: list[str] = Field(default_factory=list)
    begun: int = 0
    cases: list[Case] = Field(default_factory=list)

    def case(self, fingerprint: str | None) -> Case | None:
        """The case of that situation."""
        return next((one for one in self.cases if one.fingerprint == fingerprint), None)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to follow."""
        return not self.open and not self.cases


@dataclass(frozen=True)
class Rules:
    """How eager the plugin is; times in seconds.

    Attributes:
        pause: before the second attempt; doubled before each further one.
        cooldown: how long an outcome holds when its situation comes back.
        max_running: investigations at the same time.
        max_per_episode: investigations in one episode.
        absence: after which a situation is over that is not seen; None: at once.
    """

    pause: float
    cooldown: float
    max_running: int
    max_per_episode: int
    absence: float | None


@dataclass(frozen=True)
class Sight:
    """What an iteration sees.

    Attributes:
        iteration: its number.
        now: when it looks.
        sources: of all observations.
        fingerprint: of what must be investigated; None: there is nothing.
        severity: the worst of it.
        lasting: whether all of it are metrics and states.
        grave: the sources of it.
    """

    iteration: int
    now: datetime
    sources: frozenset[str] = frozenset()
    fingerprint: str | None = None
    severity: Severity = "warning"
    lasting: bool = True
    grave: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Failure:
    """An attempt that came to nothing, and may come to something later."""

    why: str
    investigation: str | None = None


#: What the investigations of attempts came to, by the keys of these.
News = Mapping[str, InvestigationOutcome | Failure]


@dataclass
class _Draft:
    """A memory while it is changed."""

    memory: CaseMemory
    cases: dict[str, Case] = field(init=False)

    def __post_init__(self) -> None:
        self.cases = {one.fingerprint: one for one in self.memory.cases}


def look(memory: CaseMemory, sight: Sight, rules: Rules) -> CaseMemory:
    """What *memory* is after an iteration has seen *sight*: what must be under way by then is."""
    if memory.iteration > sight.iteration:
        return memory
    memory = _episode(memory, sight, rules)
    draft = _Draft(memory)
    draft.cases = {one.fingerprint: one for one in memory.cases if _kept(one, memory, sight, rules)}
    begun = memory.begun
    for one in list(draft.cases.values()):
        if _due(one, sight):
            again = {"attempt": one.attempt + 1, "retry_at": None}
            draft.cases[one.fingerprint] = one.patched(again)
    if sight.fingerprint is not None:
        begun += _see(draft, sight, rules)
    cases = list(draft.cases.values())
    return memory.patched({"iteration": sight.iteration, "begun": begun, "cases": cases})


def settle(memory: CaseMemory, sight: Sight, news: News, rules: Rules) -> CaseMemory:
    """What *memory* is once the *news* are known, and what is known by now was told."""
    if memory.iteration != sight.iteration:
        return memory
    cases = [_settled(one, sight, news.get(one.key), rules) for one in memory.cases]
    return memory.patched({"cases": cases})


def to_tell(memory: CaseMemory, sight: Sight) -> list[Case]:
    """The cases whose outcome this iteration tells: of what it sees first, then what is new."""
    known = [one for one in memory.cases if one.outcome is not None]
    seen = [one for one in known if one.fingerprint == sight.fingerprint]
    return seen + [one for one in known if one not in seen and one.told == sight.iteration]


def _episode(memory: CaseMemory, sight: Sight, rules: Rules) -> CaseMemory:
    if sight.fingerprint is not None:
        seen = {"seen_at": sight.now, "sources": sorted(sight.grave)[:SOURCES]}
        if memory.open:
            return memory.patched(seen)
        began = {"open": True, "episode": sight.iteration, "begun": 0}
        return memory.patched({**seen, **began})
    if memory.open and _has_gone(memory, sight, rules):
        return memory.patched({"open": False})
    return memory


def _has_gone(memory: CaseMemory, sight: Sight, rules: Rules) -> bool:
    """Whether the episode is over, or its sources just were not looked at this time."""
    if rules.absence is None or memory.seen_at is None or sight.sources >= set(memory.sources):
        return True
    return sight.now - memory.seen_at >= timedelta(seconds=rules.absence)


def _kept(case: Case, memory: CaseMemory, sight: Sight, rules: Rules) -> bool:
    """Whether a case can still matter."""
    if memory.open and case.episode == memory.episode:
        return True
    if case.outcome is not None:
        told = case.told is not None and case.told < sight.iteration
        return not told or _holds(case, sight, rules)
    # What failed and is over by itself is not worth another attempt.
    gone = case.lasting or case.attempt >= ATTEMPTS
    return case.under_way or not gone or case.fingerprint == sight.fingerprint


def _holds(case: Case, sight: Sight, rules: Rules) -> bool:
    """Whether an outcome of an earlier episode is recent enough to stand for a new one."""
    if case.ended_at is None:
        return False
    return sight.now - case.ended_at < timedelta(seconds=rules.cooldown)


def _due(case: Case, sight: Sight) -> bool:
    if case.retry_at is None or case.retry_at > sight.now:
        return False
    return case.fingerprint == sight.fingerprint or not case.lasting


def _see(draft: _Draft, sight: Sight, rules: Rules) -> int:
    """Take up what is seen; how many investigations that begins."""
    assert sight.fingerprint is not None
    episode = draft.memory.episode
    known = draft.cases.get(sight.fingerprint)
    if known is not None:
        draft.cases[sight.fingerprint] = known.patched({"episode": episode})
        return 0
    running = sum(one.under_way for one in draft.cases.values())
    if running >= rules.max_running or draft.memory.begun >= rules.max_per_episode:
        return 0
    draft.cases[sight.fingerprint] = Case(
        fingerprint=sight.fingerprint,
        episode=episode,
        began=sight.iteration,
        severity=sight.severity,
        lasting=sight.lasting,
    )
    return 1


def _settled(
    case: Case, sight: Sight, came: InvestigationOutcome | Failure | None, rules: Rules
) -> Case:
    if isinstance(came, Failure):
        pause = min(rules.pause * 2.0 ** min(case.attempt - 1, 30), LONGEST_PAUSE)
        retry_at = sight.now + timedelta(seconds=pause)
        failed = {"retry_at": retry_at, "why": came.why, "failed": came.investigation}
        return case.patched(failed)
    if came is not None:
        case = case.patched({"outcome": came, "ended_at": sight.now})
    if case.outcome is not None and case.told is None:
        return case.patched({"told": sight.iteration})
    return case


#: How sure the assessment is that nothing is to be investigated, and while it is being found out.
QUIET = 0.9
UNDER_WAY = 0.3


def quiet(source: str, severity: str, memory: CaseMemory) -> SituationAssessment:
    """That nothing is grave enough."""
    running = [one.key for one in memory.cases if one.outcome is None]
    data: JsonObject = {"status": "quiet"}
    return SituationAssessment(
        source=source,
        findings=[f"Nothing was seen that is of severity {severity} or worse"],
        confidence=QUIET,
        data={**data, "open": list(running)} if running else data,
    )


def reading(
    source: str,
    sight: Sight,
    memory: CaseMemory,
    running: Mapping[str, Investigation],
    min_confidence: float,
) -> SituationAssessment:
    """What is known of what is seen, and what has become known of what was seen before."""
    told = to_tell(memory, sight)
    parts = [_found(source, one, sight, min_confidence) for one in told]
    current = memory.case(sight.fingerprint)
    if sight.fingerprint is not None and (current is None or current.outcome is None):
        under_way = running.get(current.key) if current else None
        parts.insert(0, _pending(source, sight, current, under_way))
    return _merged(parts)


def _found(source: str, case: Case, sight: Sight, min_confidence: float) -> SituationAssessment:
    outcome = case.outcome
    assert outcome is not None, "only what has an outcome is told"
    late = case.fingerprint != sight.fingerprint
    level = _level(case)
    evidence = AnswerEvidence(
        **{name: getattr(outcome, name) for name in type(outcome).model_fields},
        fingerprint=case.fingerprint,
        episode=case.episode,
        late=late,
        priority=level if late and not case.lasting else None,
    )
    action = outcome.recommended_action
    recommended = [f"Recommended: {action}"] if action else []
    sure = outcome.confidence >= min_confidence
    cause = outcome.root_cause if sure else None
    return SituationAssessment(
        source=source,
        findings=[*outcome.findings, *recommended],
        contributing_factor=cause,
        impact_assessment=outcome.impact,
        confidence=outcome.confidence,
        anomalies=[_anomaly(cause, level, outcome.affected)] if cause else None,
        data=evidence.to_wire(),
    )


def _anomaly(cause: str, level: Level, affected: list[str]) -> Anomaly:
    return Anomaly(
        type="root-cause", description=cause, severity=level, affected_resources=affected or None
    )


def _pending(
    source: str, sight: Sight, case: Case | None, found: Investigation | None
) -> SituationAssessment:
    data: JsonObject = {"status": "not-begun", "fingerprint": sight.fingerprint}
    if case is None:
        why = "Not investigated yet: there are too many investigations already"
        return SituationAssessment(source=source, findings=[why], confidence=NONE, data=data)
    data = {**data, "episode": case.episode, "attempt": case.attempt}
    if case.retry_at is not None:
        failed: JsonObject = {"status": "failed", "retryAt": case.retry_at.isoformat()}
        if case.failed:
            failed["investigation"] = case.failed
        which = f"The investigation {case.failed}" if case.failed else "The investigation"
        when = f"it is tried again after {case.retry_at:%Y-%m-%d %H:%M:%S} UTC"
        said = f"{which} has failed: {case.why}; {when}"
        return SituationAssessment(
            source=source, findings=[said], confidence=NONE, data={**data, **failed}
        )
    if found is None:
        return SituationAssessment(
            source=source, findings=["Under investigation"], confidence=UNDER_WAY, data=data
        )
    waits = f", which waits for the approval {found.approval_id}" if found.approval_id else ""
    more: JsonObject = {
        "status": found.status,
        "investigation": found.id,
        "turns": found.counters.steps,
        "toolCalls": found.counters.tool_calls,
        "reflection": found.reflection,
    }
    return SituationAssessment(
        source=source,
        findings=[f"Under investigation {found.id}{waits}"],
        confidence=UNDER_WAY,
        data={**data, **more},
    )


def _merged(parts: Sequence[SituationAssessment]) -> SituationAssessment:
    """All in one, as sure as the least sure; the data of the first, with the others in it."""
    first, *others = parts
    if not others:
        return first
    sure = [part.confidence for part in parts if part.confidence is not None]
    data = [part.data or {} for part in others]
    wanted = [part.get("priority") for part in (first.data or {}, *data)]
    worst: JsonObject = next(({"priority": one} for one in reversed(LEVELS) if one in wanted), {})
    return first.patched(
        {
            "findings": [finding for part in parts for finding in part.findings],
            "contributing_factor": _joined([part.contributing_factor for part in parts]),
            "impact_assessment": _joined([part.impact_assessment for part in parts]),
            "confidence": min(sure, default=None),
            "anomalies": [one for part in parts for one in part.anomalies or ()] or None,
            "data": {**(first.data or {}), **worst, "others": list(data)},
        }
    )


def _joined(texts: Sequence[str | None]) -> str | None:
    return "; ".join(text for text in texts if text) or None


def _level(case: Case) -> Level:
    return LEVELS[SEVERITIES.index(case.severity)]
