"""Six imaginary services that need each other; a file breaks one, and others follow."""

from __future__ import annotations

import os
from pathlib import Path

from boyd import (
    Anomaly,
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

#: What each service needs, and the seconds after which it fails without it.
NEEDS = {
    "db": [],
    "cache": [],
    "mail": [],
    "shop": ["db", "cache"],
    "cart": ["shop"],
    "pay": ["shop"],
}
LAG = 12.0


def folder() -> Path:
    """The folder in which a file named after a service breaks it."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "boyd-causes"


def broken_since(name: str) -> float | None:
    """When a service broke, by itself or because of one that it needs."""
    file = folder() / name
    begins = [file.stat().st_mtime] if file.exists() else []
    causes = [broken_since(other) for other in NEEDS[name]]
    begins += [since + LAG for since in causes if since is not None]
    return min(begins, default=None)


class Service(Model):
    """A service by its name."""

    name: str


class Services(Plugin):
    """Watches the services, and asks to restart the one that is the likely cause."""

    id = "services"

    @observer(timeout=5)
    def look(self, ctx: Context) -> list[Observation]:
        """Look at each service."""
        now = ctx.now().timestamp()
        return [
            Observation(
                source=f"{self.id}/{name}",
                type="state",
                severity="info" if since is None or since > now else "error",
                data={"name": name},
            )
            for name in NEEDS
            for since in [broken_since(name)]
        ]

    @orienter()
    def judge(self, observations: list[Observation]) -> SituationAssessment:
        """Find the services that are down."""
        down = [
            str(one.data["name"])
            for one in observations
            if one.source.startswith(f"{self.id}/") and one.severity == "error"
        ]
        return SituationAssessment(
            source=f"{self.id}:judge",
            findings=[f"{name} is down" for name in down] or ["All services are up"],
            confidence=0.9,
            anomalies=[
                Anomaly(
                    type="service-down",
                    description=f"{name} does not answer",
                    severity="critical" if name in ("cart", "pay") else "high",
                    affected_resources=[name],
                )
                for name in down
            ],
        )

    @strategy(withdraw_when_clear=True)
    def restart_cause(self, situation: Situation) -> Decision:
        """Restart the likely cause, and not what suffers from it."""
        evidence = situation.evidence("likely-causes:rank")
        return Decision(
            action=f"{self.id}:restart",
            params={"name": evidence["cause"]},
            rationale=f"{evidence['cause']} is the likely cause: {evidence['why']}",
            confidence=0.8,
            risk="medium",
        )

    @restart_cause.applicable_when
    def _has_cause(self, situation: Situation) -> bool:
        return situation.evidence("likely-causes:rank").get("cause") is not None

    @action(target="name", risk="medium", autonomy="approval-required")
    def restart(self, params: Service) -> str:
        """Restart a service."""
        (folder() / params.name).unlink(missing_ok=True)
        return f"restarted {params.name}"

    @restart.verify(within=30, every=2)
    def _is_up(self, params: Service) -> bool:
        return broken_since(params.name) is None
