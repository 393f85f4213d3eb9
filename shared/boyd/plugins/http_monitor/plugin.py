"""The plugin `http-monitor`: it checks HTTP endpoints and restarts those that are down."""

from __future__ import annotations

from typing import Any

from pydantic import Field, JsonValue

from boyd.models import (
    ActionResult,
    Autonomy,
    Decision,
    EffectVerdict,
    JsonObject,
    Model,
    Observation,
    Severity,
    Situation,
    SituationAssessment,
    no_op,
)
from boyd.models.effect import EffectChecks
from boyd.plugin import Action, Context, Observer, Plugin, endpoint, orienter, strategy
from boyd.plugins.http_monitor import health
from boyd.plugins.http_monitor import monitored_endpoint as settings
from boyd.plugins.http_monitor.monitored_endpoint import (
    Check,
    MonitoredEndpoint,
    Prober,
    describe_restart,
    public_url,
    restart,
)

#: Seconds added to the time limits of endpoints and restarts.
MARGIN = 5.0


class RestartParams(Model):
    """The endpoint to restart."""

    endpoint_id: str = Field(min_length=1, description="the id of an endpoint in the options")


class HttpMonitor(Plugin):
    """Checks HTTP endpoints and restarts those that are down.

    Every `check_interval` seconds each endpoint is checked once, `shard_size` of them in one place.
    An endpoint with `failure_threshold` consecutive failures is down and is restarted, at most once
    per `cooldown`. If at least half of the endpoints (and two) fail, a common cause is likely and
    none is restarted.
    """

    id = "http-monitor"

    class Options(settings.Options):
        """See `boyd.plugins.http_monitor.monitored_endpoint`."""

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._endpoints = {endpoint.id: endpoint for endpoint in self.options.endpoints}
        self._prober = Prober()
        self.components = (self._observer(), self._action())

    def observer_options(self) -> str:
        """All but those of the orienter, which counts the recorded failures by its own limits."""
        later = {"failure_threshold", "cooldown", "restart"}
        return self.options.model_dump_json(exclude={"endpoints": {"__all__": later}})

    def _observer(self) -> Observer:
        return Observer(
            name="health_check",
            description="Check every endpoint once.",
            interval=self.options.check_interval,
            timeout=max(e.timeout for e in self._endpoints.values()) + MARGIN,
            queue=self.options.queue,
            partition=self._shards,
            observe=self.health_check,
        )

    def _action(self) -> Action:
        limits = [e.restart.timeout for e in self._endpoints.values() if e.restart]
        return Action(
            name="restartService",
            description="Restart an endpoint.",
            risk="medium",
            autonomy=Autonomy(mode="auto", min_confidence=0.7),
            timeout=max(limits, default=60.0) + MARGIN,
            queue=self.options.restart_queue,
            target="endpointId",
            execute=self.restart_service,
            dry_run=self._would_restart,
            verify=self._has_recovered,
            checks=EffectChecks(within=30.0, every=2.0),
        )

    @property
    def _source(self) -> str:
        return f"{self.id}/health-check"

    def _shards(self) -> list[list[str]]:
        ids, size = list(self._endpoints), self.options.shard_size
        return [ids[start : start + size] for start in range(0, len(ids), size)]

    def health_check(self, ctx: Context, shard: list[str] | None) -> list[Observation]:
        """Check the endpoints of *shard*, by default all of them, concurrently."""
        ids = self._endpoints if shard is None else shard
        # A worker with a newer agent file may no longer know an id.
        endpoints = [self._endpoints[id] for id in ids if id in self._endpoints]
        checks = zip(endpoints, self._prober.check_all(endpoints), strict=True)
        return [self._observation(ctx, endpoint, check) for endpoint, check in checks]

    def _observation(self, ctx: Context, endpoint: MonitoredEndpoint, check: Check) -> Observation:
        history = health.count(ctx, endpoint, check, self.options.max_history)
        return Observation(
            source=self._source,
            type="metric",
            severity=_severity(endpoint, check, history.failures),
            timestamp=ctx.now(),
            data={
                "endpointId": endpoint.id,
                "name": endpoint.title,
                "url": public_url(endpoint.url),
                "healthy": check.healthy,
                "statusCode": check.status,
                "expectedStatus": endpoint.expected_status,
                "responseTime": round(check.ms, 1),
                "error": check.error,
                "consecutiveFailures": history.failures,
                "threshold": endpoint.failure_threshold,
                "critical": endpoint.critical,
            },
        )

    @orienter()
    def analyze_failures(
        self, observations: list[Observation], ctx: Context
    ) -> SituationAssessment:
        """Find the unhealthy endpoints, and whether their failures have a common cause."""
        own = [o for o in observations if o.source == self._source]
        failing = [self._endpoints[id] for id in health.failing_by_endpoint(own, self._endpoints)]
        evidence = health.gather(own, self._endpoints, health.recall(ctx, failing), ctx.now())
        due = f"{self.id}:health_check" not in ctx.not_due
        return health.assess(f"{self.id}:analyze_failures", self._source, evidence, due)

    @strategy()
    def restart_unhealthy_endpoint(self, situation: Situation) -> Decision:
        """Restart the first endpoint that is down, out of cooldown and can be restarted."""
        endpoint = self._evidence(situation).to_restart()
        if endpoint is None:
            return no_op("No endpoint needs a restart")
        times = "once" if endpoint.failures == 1 else f"{endpoint.failures} consecutive times"
        return Decision(
            action=f"{self.id}:restartService",
            params={"endpointId": endpoint.endpoint_id},
            rationale=f"Endpoint {endpoint.name} has failed {times}",
            confidence=0.85,
            risk="medium" if endpoint.critical else "low",
            requires_approval=endpoint.critical,
            estimated_impact=f"{endpoint.name} is briefly unavailable while it restarts",
        )

    @restart_unhealthy_endpoint.applicable_when
    def _something_to_restart(self, situation: Situation) -> bool:
        # Not applicable instead of a no-op, which would prevent later strategies from running: in a
        # cascading failure, one of them may know what to do.
        return self._evidence(situation).to_restart() is not None

    def _evidence(self, situation: Situation) -> health.CheckEvidence:
        evidence = situation.evidence(f"{self.id}:analyze_failures")
        return health.CheckEvidence.model_validate(evidence)

    def restart_service(self, params: RestartParams, ctx: Context) -> ActionResult:
        """Restart an endpoint; the cooldown begins before the attempt."""
        endpoint = self._endpoint(params)
        health.stamp_restart(ctx, endpoint)
        try:
            output = restart(endpoint)
        except Exception as error:  # noqa: BLE001 - any error is a failed restart
            ctx.logger.warning("restart of %s failed: %s", endpoint.id, error)
            return self._result(endpoint, success=False, error=f"Restart failed: {error}")
        effects = [f"{endpoint.title} was restarted"]
        return self._result(endpoint, success=True, output=output, side_effects=effects)

    @endpoint("GET", "/endpoints")
    def list_endpoints(self, ctx: Context) -> JsonObject:
        """List the endpoints with their last checks, newest first."""
        endpoints = list(self._endpoints.values())
        memories = health.recall(ctx, endpoints)
        return {"endpoints": [_describe(each, memories[each.id]) for each in endpoints]}

    def _result(
        self, endpoint: MonitoredEndpoint, *, output: str = "", **values: Any
    ) -> ActionResult:
        # The loop measures the duration.
        return ActionResult(
            action=f"{self.id}:restartService",
            duration=0.0,
            output={"endpointId": endpoint.id, "output": output},
            **values,
        )

    def _would_restart(self, params: RestartParams) -> str:
        return describe_restart(self._endpoint(params))

    def _has_recovered(self, params: RestartParams) -> EffectVerdict:
        endpoint = self._endpoint(params)
        [check] = self._prober.check_all([endpoint])
        if check.healthy:
            return EffectVerdict(verdict="effective", evidence=f"{endpoint.title} is healthy")
        problem = f"{endpoint.title} still fails: {check.error}"
        return EffectVerdict(verdict="no effect", evidence=problem, final=False)

    def _endpoint(self, params: RestartParams) -> MonitoredEndpoint:
        if params.endpoint_id not in self._endpoints:
            raise LookupError(f"no endpoint {params.endpoint_id!r}")
        return self._endpoints[params.endpoint_id]


def _severity(endpoint: MonitoredEndpoint, check: Check, failures: int) -> Severity:
    if check.healthy:
        return "info"
    if failures < endpoint.failure_threshold:
        return "warning"
    return "critical" if endpoint.critical else "error"


def _describe(endpoint: MonitoredEndpoint, history: health.EndpointHistory) -> JsonObject:
    """An endpoint for display, without headers and restart settings."""
    checks: list[JsonValue] = [past.to_wire() for past in reversed(history.checks)]
    return {
        "id": endpoint.id,
        "name": endpoint.title,
        "url": public_url(endpoint.url),
        "critical": endpoint.critical,
        "healthy": history.checks[-1].ok if history.checks else None,
        "consecutiveFailures": history.failures,
        "threshold": endpoint.failure_threshold,
        "restartedAt": history.restarted_at.isoformat() if history.restarted_at else None,
        "checks": checks,
    }
