"""What the assessment says of what is seen, under investigation, and found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boyd.models import LEVELS, SEVERITIES, Anomaly, JsonObject, Level, SituationAssessment
from boyd.models.investigation import Investigation
from boyd.plugins.investigation.answer import NONE, Evidence
from boyd.plugins.investigation.memory import Case, Memory, Sight, to_tell

#: How sure the assessment is that nothing is to be investigated, and while it is being found out.
QUIET = 0.9
UNDER_WAY = 0.3


def quiet(source: str, severity: str, memory: Memory) -> SituationAssessment:
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
    memory: Memory,
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
    evidence = Evidence(
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
