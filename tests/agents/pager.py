"""An event-driven agent that proposes to restart what an alert names, which a person has to allow.

`NOTIFIED` names the groups that it notifies, as JSON.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import BaseModel

from boyd import (
    Agent,
    Decision,
    Observation,
    Plugin,
    Situation,
    SituationAssessment,
    action,
    orienter,
    strategy,
)
from boyd.plugins.notifier import Notifier

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))


class Service(BaseModel):
    """The service to restart."""

    name: str


class Pager(Plugin):
    """Restarts what is down."""

    id = "pager"

    @orienter()
    def read(self, observations: list[Observation]) -> SituationAssessment:
        """Name the services whose alerts fire."""
        firing = [one.data for one in observations if one.data["status"] == "firing"]
        down = [
            str(labels["service"]) for one in firing if isinstance(labels := one["labels"], dict)
        ]
        return SituationAssessment(source="pager:read", findings=down, confidence=1.0)

    @strategy()
    def decide(self, situation: Situation) -> Decision:
        """Propose to restart the first."""
        down = [name for one in situation.assessments for name in one.findings]
        if not down:
            return Decision(action="no-op", rationale="nothing is down", confidence=1.0)
        return Decision(
            action="pager:restart",
            params={"name": down[0]},
            rationale=f"{down[0]} is down",
            confidence=1.0,
        )

    @action(autonomy="approval-required", risk="medium")
    def restart(self, params: Service) -> str:
        """Restart a service."""
        with EFFECTS.open("a") as file:
            file.write(f"{params.name}\n")
        return f"restarted {params.name}"

    @restart.dry_run
    def _preview(self, params: Service) -> str:
        return f"would restart {params.name}"


def _plugins() -> list[Plugin]:
    groups = json.loads(os.environ.get("NOTIFIED", "[]"))
    return [Pager(), *([Notifier(groups=groups)] if groups else [])]


pager = Agent(
    "pager",
    mode="event-driven",
    plugins=_plugins(),
    approvals={"required": {"person": True}},
)
