"""Twelve event-driven agents that propose to restart what an alert names, if a person allows it.

A restart helps, unless the service is called `fragile`; that is seen, and undone. `NOTIFIED` has
the options of the plugin `notifier`, and `SLACK` those of `slack`, as JSON.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import BaseModel

from boyd import (
    Agent,
    Anomaly,
    Decision,
    EffectVerdict,
    Observation,
    Plugin,
    Situation,
    SituationAssessment,
    action,
    orienter,
    strategy,
)
from boyd.models import ActionResult
from boyd.plugins.notifier import Notifier
from boyd_slack.plugin import SlackMessages

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))
NAMES = ("shop", "mail", "ledger", *(f"other{number}" for number in range(9)))


class Service(BaseModel):
    """The service to restart."""

    name: str


class Pager(Plugin):
    """Restarts what is down."""

    id = "pager"

    @orienter()
    def read(self, observations: list[Observation]) -> SituationAssessment:
        """Name the services whose alerts fire."""
        labels = [
            observation.data["labels"]
            for observation in observations
            if observation.data["status"] == "firing"
        ]
        down = [str(names["service"]) for names in labels if isinstance(names, dict)]
        anomalies = [
            Anomaly(
                type="service-down",
                description=f"{name} is down",
                severity="critical",
                affected_resources=[name],
            )
            for name in down
        ]
        return SituationAssessment(
            source="pager:read", findings=down, confidence=1.0, anomalies=anomalies
        )

    @strategy()
    def decide(self, situation: Situation) -> Decision:
        """Propose to restart the first."""
        down = [name for part in situation.assessments for name in part.findings]
        if not down:
            return Decision(action="no-op", rationale="nothing is down", confidence=1.0)
        return Decision(
            action="pager:restart",
            params={"name": down[0]},
            rationale=f"{down[0]} is down",
            confidence=1.0,
            requires_approval=True,
        )

    @action(risk="medium", target="name")
    def restart(self, params: Service) -> str:
        """Restart a service."""
        return self._note("restart", params)

    @restart.dry_run
    def _preview(self, params: Service) -> str:
        return f"would restart {params.name}"

    @restart.verify(within=60, every=0.5)
    def _look(self, params: Service, result: ActionResult) -> EffectVerdict:
        if not params.name.startswith("fragile"):
            return EffectVerdict(verdict="effective", evidence=f"{params.name} answers")
        if f"stop {params.name}" in EFFECTS.read_text():
            return EffectVerdict(verdict="no effect", evidence=f"{params.name} is down as before")
        return EffectVerdict(verdict="worse", evidence=f"{params.name} takes others down")

    @restart.rollback
    def _stop(self, params: Service, result: ActionResult) -> str:
        return self._note("stop", params)

    def _note(self, verb: str, params: Service) -> str:
        with EFFECTS.open("a") as file:
            file.write(f"{verb} {params.name}\n")
        return f"{verb} {params.name}: done"


def _agent(name: str) -> Agent:
    plugins: list[Plugin] = [Pager()]
    if "NOTIFIED" in os.environ:
        plugins.append(Notifier(**json.loads(os.environ["NOTIFIED"])))
    if "SLACK" in os.environ:
        plugins.append(SlackMessages(**json.loads(os.environ["SLACK"])))
    required = {"person": True, "links": "login"}
    return Agent(name, mode="event-driven", plugins=plugins, approvals={"required": required})


globals().update({name: _agent(name) for name in NAMES})
