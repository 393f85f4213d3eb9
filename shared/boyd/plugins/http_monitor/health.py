"""The health of endpoints: their history, the evidence for strategies, and the assessment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import Field

from boyd.models import (
    Anomaly,
    Correlation,
    Level,
    Model,
    Observation,
    SituationAssessment,
    Timestamp,
)
from boyd.plugin import Context
from boyd.plugins.http_monitor.monitored_endpoint import Check, MonitoredEndpoint
from boyd.text.formatting import counted

#: Seconds the history of an endpoint is kept after its last check.
KEEP = 7 * 86400.0


class PastCheck(Model):
    """A past check; `ms` is the time it took."""

    at: Timestamp
    ok: bool
    ms: float
    status: int | None = None
    error: str | None = None


class EndpointHistory(Model):
    """The history of an endpoint.

    Attributes:
        failures: consecutive failures.
        checks: the last checks, oldest first.
        restarted_at: the last attempt to restart it, successful or not.
        iteration: the last one counted, so that none is counted twice.
    """

    failures: int = 0
    checks: list[PastCheck] = Field(default_factory=list)
    restarted_at: Timestamp | None = None
    iteration: int | None = None

    def in_cooldown(self, endpoint: MonitoredEndpoint, now: datetime) -> bool:
        """True if the last attempt to restart it is too recent for another one."""
        if self.restarted_at is None:
            return False
        return now < self.restarted_at + timedelta(seconds=endpoint.cooldown)


def recall(ctx: Context, endpoints: list[MonitoredEndpoint]) -> dict[str, EndpointHistory]:
    """The history of each endpoint by id, in one round trip."""
    keys = {_key(endpoint): endpoint.id for endpoint in endpoints}
    texts = ctx.state.get_many(list(keys))
    return {id: _read(texts.get(key)) for key, id in keys.items()}


def count(
    ctx: Context, endpoint: MonitoredEndpoint, check: Check, max_history: int
) -> EndpointHistory:
    """Record a check once per iteration; outside of iterations nothing is recorded."""
    if ctx.iteration is None:
        return recall(ctx, [endpoint])[endpoint.id]
    past = PastCheck(
        at=ctx.now(),
        ok=check.healthy,
        ms=round(check.ms, 1),
        status=check.status,
        error=check.error,
    )

    def change(memory: EndpointHistory) -> EndpointHistory:
        if memory.iteration == ctx.iteration:
            return memory
        failures = 0 if check.healthy else memory.failures + 1
        checks = [*memory.checks, past][-max_history:]
        return memory.patched({"failures": failures, "checks": checks, "iteration": ctx.iteration})

    return _update(ctx, endpoint, change)


def stamp_restart(ctx: Context, endpoint: MonitoredEndpoint) -> None:
    """Start the cooldown before the attempt, so that it also holds if the attempt fails."""
    now = ctx.now()
    _update(ctx, endpoint, lambda memory: memory.patched({"restarted_at": now}))


def _update(
    ctx: Context, endpoint: MonitoredEndpoint, change: Callable[[EndpointHistory], EndpointHistory]
) -> EndpointHistory:
    key, ttl = _key(endpoint), max(KEEP, 2 * endpoint.cooldown)
    return _read(ctx.state.update(key, lambda value: change(_read(value)).to_wire(), ttl=ttl))


def _key(endpoint: MonitoredEndpoint) -> str:
    return f"endpoint:{endpoint.id}"


def _read(value: Any) -> EndpointHistory:
    return EndpointHistory() if value is None else EndpointHistory.model_validate(value)


Pattern = Literal["none", "isolated", "cascading"]

#: The most unhealthy endpoints listed for people and for strategies: 10 000 may fail at once.
NAMED, EVIDENCE = 20, 200


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
        """True if it should be restarted now."""
        return self.over_threshold and self.restartable and not self.in_cooldown


class CheckEvidence(Model):
    """The evidence for strategies.

    Attributes:
        checked: how many endpoints were checked in this iteration.
        unchecked: how many were not, as when a worker was lost: nothing is known of them.
        unhealthy: in the order of configuration.
    """

    checked: int = 0
    unchecked: int = 0
    unhealthy_count: int = 0
    pattern: Pattern = "none"
    unhealthy: list[Unhealthy] = Field(default_factory=list)

    def to_restart(self) -> Unhealthy | None:
        """The endpoint to restart; none in a cascading failure, which has another cause."""
        if self.pattern == "cascading":
            return None
        return next((endpoint for endpoint in self.unhealthy if endpoint.may_restart), None)


def gather(
    observations: Sequence[Observation],
    endpoints: Mapping[str, MonitoredEndpoint],
    memories: Mapping[str, EndpointHistory],
    now: datetime,
) -> CheckEvidence:
    """The evidence in the monitor's observations of this iteration."""
    failing = [
        _unhealthy(endpoints[id], memories[id], observation, now)
        for id, observation in failing_by_endpoint(observations, endpoints).items()
    ]
    # The sort is stable: endpoints to restart come first, but only if there are too many.
    ranked = (
        failing if len(failing) <= EVIDENCE else sorted(failing, key=lambda u: not u.may_restart)
    )
    pattern: Pattern = "isolated" if failing else "none"
    # A common cause is likely only if at least two endpoints fail.
    if len(failing) >= 2 and len(failing) * 2 >= len(observations):
        pattern = "cascading"
    checked = {str(observation.data["endpointId"]) for observation in observations}
    return CheckEvidence(
        checked=len(observations),
        unchecked=len(endpoints.keys() - checked),
        unhealthy_count=len(failing),
        pattern=pattern,
        unhealthy=ranked[:EVIDENCE],
    )


def failing_by_endpoint(
    observations: Sequence[Observation], endpoints: Mapping[str, MonitoredEndpoint]
) -> dict[str, Observation]:
    """The observations of failing endpoints by their ids, in the order of configuration."""
    by_id = {str(observation.data["endpointId"]): observation for observation in observations}
    return {id: by_id[id] for id in endpoints if id in by_id and not by_id[id].data["healthy"]}


def assess(
    source: str, observed: str, evidence: CheckEvidence, due: bool = True
) -> SituationAssessment:
    """The evidence as an assessment; *observed* is its source, *due* if checks were due."""
    if not evidence.unhealthy:
        unseen = "No endpoint was checked" if due else "No endpoint was due for a check"
        finding = _health(evidence) if evidence.checked else f"{unseen} in this iteration"
        data = evidence.to_wire()
        return SituationAssessment(source=source, findings=[finding], confidence=1.0, data=data)
    return SituationAssessment(
        source=source,
        findings=_findings(evidence),
        contributing_factor=_factor(evidence),
        impact_assessment=_impact(evidence),
        confidence=0.9,
        data=evidence.to_wire(),
        anomalies=[_anomaly(endpoint) for endpoint in evidence.unhealthy[:NAMED]],
        correlations=_correlations(observed, evidence),
    )


def _unhealthy(
    endpoint: MonitoredEndpoint, memory: EndpointHistory, observation: Observation, now: datetime
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


def _health(evidence: CheckEvidence) -> str:
    """The finding if no checked endpoint is unhealthy."""
    number = evidence.checked
    if evidence.unchecked:
        healthy = counted(number, "endpoint is", "endpoints are") + " healthy"
        return f"{healthy}, {_gap(evidence)}"
    return "The endpoint is healthy" if number == 1 else f"All {number} endpoints are healthy"


def _gap(evidence: CheckEvidence) -> str:
    return f"{evidence.unchecked} {'was' if evidence.unchecked == 1 else 'were'} not checked"


def _findings(evidence: CheckEvidence) -> list[str]:
    endpoints = evidence.unhealthy[:NAMED]
    failures = [counted(endpoint.failures, "consecutive failure") for endpoint in endpoints]
    findings = [counted(evidence.unhealthy_count, "endpoint is", "endpoints are") + " unhealthy"]
    findings += [
        f"{endpoint.name}: {text}" for endpoint, text in zip(endpoints, failures, strict=True)
    ]
    more = evidence.unhealthy_count - NAMED
    findings += [f"and {more} more"] if more > 0 else []
    return [*findings, _gap(evidence)] if evidence.unchecked else findings


def _factor(evidence: CheckEvidence) -> str:
    share = f"{evidence.unhealthy_count} of {evidence.checked} endpoints"
    if evidence.pattern == "cascading":
        return f"cascading: {share} fail at once, so a shared cause is likely; none is restarted"
    return f"isolated: {share} fail"


def _impact(evidence: CheckEvidence) -> str | None:
    down = [endpoint.name for endpoint in evidence.unhealthy if endpoint.over_threshold][:NAMED]
    return f"Down: {', '.join(down)}" if down else None


def _anomaly(endpoint: Unhealthy) -> Anomaly:
    return Anomaly(
        type="endpoint-down" if endpoint.over_threshold else "endpoint-failing",
        description=(
            f"{endpoint.name}: {endpoint.error or 'unhealthy'} ({endpoint.failures} in a row)"
        ),
        severity=_level(endpoint),
        affected_resources=[endpoint.endpoint_id],
    )


def _level(endpoint: Unhealthy) -> Level:
    if not endpoint.over_threshold:
        return "medium"
    return "critical" if endpoint.critical else "high"


def _correlations(observed: str, evidence: CheckEvidence) -> list[Correlation] | None:
    if evidence.pattern != "cascading":
        return None
    # All checks have the same source, so the endpoint's id is added.
    return [
        Correlation(
            observations=[
                f"{observed}#{endpoint.endpoint_id}" for endpoint in evidence.unhealthy[:NAMED]
            ],
            description=f"{evidence.unhealthy_count} endpoints fail in the same iteration",
            confidence=evidence.unhealthy_count / evidence.checked,
        )
    ]
