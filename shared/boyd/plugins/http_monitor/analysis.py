"""What a round of checks means: typed evidence, and the assessment that people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field

from boyd.counting import counted
from boyd.models import Anomaly, Correlation, Level, Model, Observation, SituationAssessment
from boyd.plugins.http_monitor.memory import Memory
from boyd.plugins.http_monitor.options import Endpoint

Pattern = Literal["none", "isolated", "cascading"]

#: How many unhealthy endpoints are named one by one: a situation is kept in Redis and read by
#: people, and 10 000 endpoints may fail at once.
NAMED = 20
#: How many of them strategies can see.
EVIDENCE = 200


class Unhealthy(Model):
    """An endpoint that failed its last check."""

    endpoint_id: str
    name: str
    failures: int
    threshold: int
    over_threshold: bool
    in_cooldown: bool
    restartable: bool
    critical: bool
    error: str | None = None

    @property
    def may_restart(self) -> bool:
        """Whether a restart is due."""
        return self.over_threshold and self.restartable and not self.in_cooldown


class Evidence(Model):
    """What strategies decide on; `unhealthy` is in the order of configuration."""

    checked: int = 0
    unhealthy_count: int = 0
    pattern: Pattern = "none"
    unhealthy: list[Unhealthy] = Field(default_factory=list)

    def to_restart(self) -> Unhealthy | None:
        """The endpoint to restart; none in a cascading failure, whose cause lies elsewhere."""
        if self.pattern == "cascading":
            return None
        return next((one for one in self.unhealthy if one.may_restart), None)


def gather(
    observations: Sequence[Observation],
    endpoints: Mapping[str, Endpoint],
    memories: Mapping[str, Memory],
    now: datetime,
) -> Evidence:
    """The evidence in the monitor's own *observations* of this iteration."""
    failing = [
        _unhealthy(endpoints[id], memories[id], observation, now)
        for id, observation in by_endpoint(observations, endpoints).items()
        if not observation.data["healthy"]
    ]
    # Sorting is stable: only where there are too many do those over the threshold go first.
    kept = failing if len(failing) <= EVIDENCE else sorted(failing, key=lambda u: not u.may_restart)
    return Evidence(
        checked=len(observations),
        unhealthy_count=len(failing),
        pattern=_pattern(len(failing), len(observations)),
        unhealthy=kept[:EVIDENCE],
    )


def by_endpoint(
    observations: Sequence[Observation], endpoints: Mapping[str, Endpoint]
) -> dict[str, Observation]:
    """The observations by endpoint id, in the order of configuration."""
    found = {str(observation.data["endpointId"]): observation for observation in observations}
    return {id: found[id] for id in endpoints if id in found}


def assess(source: str, observed: str, evidence: Evidence, due: bool = True) -> SituationAssessment:
    """The evidence as an assessment.

    Args:
        source: the orienter's id.
        observed: the source of the observations.
        evidence: what was found.
        due: whether the endpoints were to be checked in this iteration.
    """
    if not evidence.unhealthy:
        one = evidence.checked == 1
        healthy = (
            "The endpoint is healthy" if one else f"All {evidence.checked} endpoints are healthy"
        )
        unseen = "No endpoint was checked" if due else "No endpoint was due for a check"
        finding = healthy if evidence.checked else f"{unseen} in this iteration"
        return SituationAssessment(
            source=source, findings=[finding], confidence=1.0, data=evidence.to_wire()
        )
    return SituationAssessment(
        source=source,
        findings=_findings(evidence),
        contributing_factor=_factor(evidence),
        impact_assessment=_impact(evidence),
        confidence=0.9,
        data=evidence.to_wire(),
        anomalies=[_anomaly(one) for one in evidence.unhealthy[:NAMED]],
        correlations=_correlations(observed, evidence),
    )


def _unhealthy(
    endpoint: Endpoint, memory: Memory, observation: Observation, now: datetime
) -> Unhealthy:
    failures, error = observation.data["consecutiveFailures"], observation.data.get("error")
    assert isinstance(failures, int)
    return Unhealthy(
        endpoint_id=endpoint.id,
        name=endpoint.title,
        failures=failures,
        threshold=endpoint.failure_threshold,
        over_threshold=failures >= endpoint.failure_threshold,
        in_cooldown=memory.in_cooldown(endpoint, now),
        restartable=endpoint.restart is not None,
        critical=endpoint.critical,
        error=str(error) if error else None,
    )


def _pattern(unhealthy: int, checked: int) -> Pattern:
    if not unhealthy:
        return "none"
    # One endpoint out of one is no cascade: two must fail before one cause for both is likely.
    return "cascading" if unhealthy >= 2 and unhealthy * 2 >= checked else "isolated"


def _findings(evidence: Evidence) -> list[str]:
    shown = evidence.unhealthy[:NAMED]
    failures = [counted(one.failures, "consecutive failure") for one in shown]
    findings = [counted(evidence.unhealthy_count, "endpoint is", "endpoints are") + " unhealthy"]
    findings += [f"{one.name}: {text}" for one, text in zip(shown, failures, strict=True)]
    more = evidence.unhealthy_count - NAMED
    return [*findings, f"and {more} more"] if more > 0 else findings


def _factor(evidence: Evidence) -> str:
    share = f"{evidence.unhealthy_count} of {evidence.checked} endpoints"
    if evidence.pattern == "cascading":
        return f"cascading: {share} fail at once, so a shared cause is likely; none is restarted"
    return f"isolated: {share} fail"


def _impact(evidence: Evidence) -> str | None:
    down = [one.name for one in evidence.unhealthy if one.over_threshold][:NAMED]
    return f"Down: {', '.join(down)}" if down else None


def _anomaly(one: Unhealthy) -> Anomaly:
    return Anomaly(
        type="endpoint-down" if one.over_threshold else "endpoint-failing",
        description=f"{one.name}: {one.error or 'unhealthy'} ({one.failures} in a row)",
        severity=_level(one),
        affected_resources=[one.endpoint_id],
    )


def _level(one: Unhealthy) -> Level:
    if not one.over_threshold:
        return "medium"
    return "critical" if one.critical else "high"


def _correlations(observed: str, evidence: Evidence) -> list[Correlation] | None:
    if evidence.pattern != "cascading":
        return None
    # All checks have one source; the endpoint's id tells them apart.
    return [
        Correlation(
            observations=[f"{observed}#{one.endpoint_id}" for one in evidence.unhealthy[:NAMED]],
            description=f"{evidence.unhealthy_count} endpoints fail in the same iteration",
            confidence=evidence.unhealthy_count / evidence.checked,
        )
    ]
