"""The cases of an agent: investigations under way, their outcomes, and the assessment of both.

Cases change by plain functions, so that concurrent workers can retry. A change by an iteration that
is over, or one made already, has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import Field, JsonValue

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
from boyd.plugins.investigator.question import NONE, AnswerEvidence, InvestigationOutcome

#: The longest pause between two attempts, in seconds.
LONGEST_PAUSE = 3600.0
#: Attempts for a situation that is over.
ATTEMPTS = 6
#: The most sources to wait for.
SOURCES = 200


class Case(Model):
    """One situation in one episode.

    Attributes:
        episode: the last one it was observed in.
        began: the iteration in which it was first investigated.
        attempt: counts from 1.
        severity: the worst of its observations.
        lasting: all its observations are metrics or states, so it ends when they do.
        retry_at: when a failed attempt is retried.
        why: the reason of the last failure.
        failed: the investigation that failed.
        told: the iteration whose assessment first reported the outcome.
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
        """An id that differs between episodes."""
        return f"{self.fingerprint}@{self.began}"

    @property
    def key(self) -> str:
        """The id of the investigation of this attempt."""
        return self.name if self.attempt == 1 else f"{self.name}#{self.attempt}"

    @property
    def under_way(self) -> bool:
        """True if its investigation has started and is not known to have ended."""
        return self.outcome is None and self.retry_at is None


class CaseMemory(Model):
    """All cases, and the current or last episode.

    Attributes:
        iteration: the last one that changed it.
        episode: the iteration in which the episode began.
        open: the episode goes on.
        seen_at: time of the last observation to investigate.
        sources: of the observations at that time.
        begun: number of investigations in the episode.
    """

    iteration: int = 0
    episode: int = 0
    open: bool = False
    seen_at: Timestamp | None = None
    sources: list[str] = Field(default_factory=list)
    begun: int = 0
    cases: list[Case] = Field(default_factory=list)

    def case(self, fingerprint: str | None) -> Case | None:
        """The case with that fingerprint."""
        return next((case for case in self.cases if case.fingerprint == fingerprint), None)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to do."""
        return not self.open and not self.cases


@dataclass(frozen=True)
class CaseRules:
    """The limits of the plugin; times in seconds.

    Attributes:
        pause: before the second attempt, doubled before each further one.
        cooldown: time an outcome is reused when its situation returns.
        absence: time without observations after which a situation is over; if unset, at once.
    """

    pause: float
    cooldown: float
    max_running: int
    max_per_episode: int
    absence: float | None


@dataclass(frozen=True)
class Sight:
    """The observations of an iteration; `lasting` if all severe ones are metrics or states.

    `sources` are those of all observations, `grave` and `fingerprint` those of the severe ones.
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
    """A failed attempt, which may be retried."""

    why: str
    investigation: str | None = None


#: Outcomes of attempts by their keys.
News = Mapping[str, InvestigationOutcome | Failure]


def observe(memory: CaseMemory, sight: Sight, rules: CaseRules) -> CaseMemory:
    """The memory after an iteration: it holds every case that must be under way by then."""
    if memory.iteration > sight.iteration:
        return memory
    memory = _episode(memory, sight, rules)
    cases = {
        case.fingerprint: case.patched({"attempt": case.attempt + 1, "retry_at": None})
        if _due(case, sight)
        else case
        for case in memory.cases
        if _is_kept(case, memory, sight, rules)
    }
    count, running = memory.begun, sum(case.under_way for case in cases.values())
    has_room = running < rules.max_running and count < rules.max_per_episode
    if current := cases.get(sight.fingerprint or ""):
        cases[current.fingerprint] = current.patched({"episode": memory.episode})
    elif sight.fingerprint is not None and has_room:
        count += 1
        cases[sight.fingerprint] = Case(
            fingerprint=sight.fingerprint,
            episode=memory.episode,
            began=sight.iteration,
            severity=sight.severity,
            lasting=sight.lasting,
        )
    changes = {"iteration": sight.iteration, "begun": count, "cases": list(cases.values())}
    return memory.patched(changes)


def settle(memory: CaseMemory, sight: Sight, news: News, rules: CaseRules) -> CaseMemory:
    """The memory after the *news*; every known outcome counts as reported."""
    if memory.iteration != sight.iteration:
        return memory
    cases = [_with_news(case, sight, news.get(case.key), rules) for case in memory.cases]
    return memory.patched({"cases": cases})


def cases_to_report(memory: CaseMemory, sight: Sight) -> list[Case]:
    """The cases to report: the current situation first, then new outcomes."""
    finished = [case for case in memory.cases if case.outcome is not None]
    current = [case for case in finished if case.fingerprint == sight.fingerprint]
    return current + [
        case for case in finished if case not in current and case.told == sight.iteration
    ]


def _episode(memory: CaseMemory, sight: Sight, rules: CaseRules) -> CaseMemory:
    if sight.fingerprint is not None:
        sight_fields = {"seen_at": sight.now, "sources": sorted(sight.grave)[:SOURCES]}
        if memory.open:
            return memory.patched(sight_fields)
        began = {"open": True, "episode": sight.iteration, "begun": 0}
        return memory.patched({**sight_fields, **began})
    if memory.open and _has_gone(memory, sight, rules):
        return memory.patched({"open": False})
    return memory


def _has_gone(memory: CaseMemory, sight: Sight, rules: CaseRules) -> bool:
    """True if the episode is over, or its sources were merely not checked this time."""
    if rules.absence is None or memory.seen_at is None or sight.sources >= set(memory.sources):
        return True
    return sight.now - memory.seen_at >= timedelta(seconds=rules.absence)


def _is_kept(case: Case, memory: CaseMemory, sight: Sight, rules: CaseRules) -> bool:
    if memory.open and case.episode == memory.episode:
        return True
    if case.outcome is not None:
        was_reported = case.told is not None and case.told < sight.iteration
        return not was_reported or _holds(case, sight, rules)
    # A failed attempt for a situation that is over needs no retry.
    is_final = case.lasting or case.attempt >= ATTEMPTS
    return case.under_way or not is_final or case.fingerprint == sight.fingerprint


def _holds(case: Case, sight: Sight, rules: CaseRules) -> bool:
    """True if an outcome of an earlier episode is recent enough to be reused."""
    if case.ended_at is None:
        return False
    return sight.now - case.ended_at < timedelta(seconds=rules.cooldown)


def _due(case: Case, sight: Sight) -> bool:
    if case.retry_at is None or case.retry_at > sight.now:
        return False
    return case.fingerprint == sight.fingerprint or not case.lasting


def _with_news(
    case: Case, sight: Sight, came: InvestigationOutcome | Failure | None, rules: CaseRules
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


#: The confidence of a quiet assessment, and of one while an investigation runs.
QUIET = 0.9
UNDER_WAY = 0.3


def assess_quiet(source: str, severity: str, memory: CaseMemory) -> SituationAssessment:
    """The assessment without severe observations."""
    running: list[JsonValue] = [case.key for case in memory.cases if case.outcome is None]
    data: JsonObject = {"status": "quiet", **({"open": running} if running else {})}
    finding = f"No observation of severity {severity} or worse"
    return SituationAssessment(source=source, findings=[finding], confidence=QUIET, data=data)


def assess_cases(
    source: str,
    sight: Sight,
    memory: CaseMemory,
    running: Mapping[str, Investigation],
    min_confidence: float,
) -> SituationAssessment:
    """The assessment of the current situation, and of earlier ones with new outcomes."""
    reported = cases_to_report(memory, sight)
    parts = [_assess_case(source, case, sight, min_confidence) for case in reported]
    current = memory.case(sight.fingerprint)
    if sight.fingerprint is not None and (current is None or current.outcome is None):
        under_way = running.get(current.key) if current else None
        parts.insert(0, _pending(source, sight, current, under_way))
    return _merge(parts)


def _assess_case(
    source: str, case: Case, sight: Sight, min_confidence: float
) -> SituationAssessment:
    outcome = case.outcome
    assert outcome is not None, "only cases with an outcome are reported"
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
    source: str, sight: Sight, case: Case | None, investigation: Investigation | None
) -> SituationAssessment:
    data: JsonObject = {"status": "not-begun", "fingerprint": sight.fingerprint}
    finding, confidence = "Under investigation", UNDER_WAY
    if case is None:
        finding, confidence = "Not investigated yet: too many investigations are running", NONE
    else:
        data |= {"episode": case.episode, "attempt": case.attempt}
    if case and case.retry_at:
        data |= {"status": "failed", "retryAt": case.retry_at.isoformat()}
        data |= {"investigation": case.failed} if case.failed else {}
        which = f"The investigation {case.failed}" if case.failed else "The investigation"
        when = f"it is retried after {case.retry_at:%Y-%m-%d %H:%M:%S} UTC"
        finding, confidence = f"{which} has failed: {case.why}; {when}", NONE
    elif case and investigation:
        waits = (
            f", which waits for approval {investigation.approval_id}"
            if investigation.approval_id
            else ""
        )
        finding = f"Under investigation {investigation.id}{waits}"
        data |= {
            "status": investigation.status,
            "investigation": investigation.id,
            "turns": investigation.counters.steps,
            "toolCalls": investigation.counters.tool_calls,
            "reflection": investigation.reflection,
        }
    return SituationAssessment(source=source, findings=[finding], confidence=confidence, data=data)


def _merge(parts: Sequence[SituationAssessment]) -> SituationAssessment:
    """One assessment of all parts with the lowest confidence; the first holds the other data."""
    first, *others = parts
    if not others:
        return first
    sure = [part.confidence for part in parts if part.confidence is not None]
    data = [part.data or {} for part in others]
    priorities = [part.get("priority") for part in (first.data or {}, *data)]
    worst: JsonObject = next(
        ({"priority": item} for item in reversed(LEVELS) if item in priorities), {}
    )
    return first.patched(
        {
            "findings": [finding for part in parts for finding in part.findings],
            "contributing_factor": _join([part.contributing_factor for part in parts]),
            "impact_assessment": _join([part.impact_assessment for part in parts]),
            "confidence": min(sure, default=None),
            "anomalies": [item for part in parts for item in part.anomalies or ()] or None,
            "data": {**(first.data or {}), **worst, "others": list(data)},
        }
    )


def _join(texts: Sequence[str | None]) -> str | None:
    return "; ".join(text for text in texts if text) or None


def _level(case: Case) -> Level:
    return LEVELS[SEVERITIES.index(case.severity)]
