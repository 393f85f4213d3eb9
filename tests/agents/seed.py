"""The agent of the reference's approval page: its plugin, action, params, words and numbers."""

from __future__ import annotations

from boyd import (
    ActionResult,
    Agent,
    Context,
    Decision,
    Observation,
    Plugin,
    Situation,
    SituationAssessment,
    action,
    observer,
    orienter,
    strategy,
)
from boyd.models import Model

URL = "https://api.example.com/health"
#: The iteration that the page shows.
ITERATION = 12


class Restart(Model):
    """Which endpoint's service to restart; the page sends `endpointId`."""

    endpoint_id: str


class HttpMonitor(Plugin):
    """Sees an endpoint that fails, and asks whether it may be restarted."""

    id = "http-monitor"

    @observer()
    def check(self) -> list[Observation]:
        """See that it fails."""
        return [Observation(source=f"http:{URL}", type="state", severity="error", data={})]

    @orienter()
    def health(self) -> SituationAssessment:
        """Say how many fail, in the page's words."""
        return _assessment("http-monitor:health", "1 endpoint(s) are unhealthy")

    @orienter()
    def failures(self) -> SituationAssessment:
        """Say which one."""
        return _assessment("http-monitor:failures", "API Server: 5 consecutive failures")

    @strategy()
    def restart(self) -> Decision:
        """Ask for a restart."""
        return Decision(
            action="http-monitor:restartService",
            params={"endpointId": "api"},
            rationale="Endpoint API Server has failed 5 consecutive times",
            confidence=0.85,
            risk="medium",
            requires_approval=True,
        )

    @restart.applicable_when
    def _now(self, situation: Situation, ctx: Context) -> bool:
        return ctx.iteration in (1, ITERATION)

    @action(
        name="restartService",
        title="restart-service",
        risk="medium",
        autonomy="approval-required",
    )
    def restart_service(self, params: Restart) -> ActionResult:
        """Say what the page says."""
        return ActionResult(
            action="restart-service",
            success=True,
            duration=0.0,
            output="Successfully restarted service for API Server",
            side_effects=[f"Service restart triggered for {URL}"],
        )


def _assessment(source: str, finding: str) -> SituationAssessment:
    return SituationAssessment(source=source, findings=[finding], confidence=0.9)


seed = Agent("seed", plugins=[HttpMonitor()])
