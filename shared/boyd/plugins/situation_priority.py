"""The plugin `situation-priority`: observations raise the priority of the situation."""

from __future__ import annotations

from boyd.models import LEVELS, SEVERITIES, Observation, Situation
from boyd.plugin import Plugin


class SituationPriority(Plugin):
    """On by default: info, warning, error and critical make low, medium, high and critical."""

    id = "situation-priority"

    def on_orient(
        self, situation: Situation, observations: list[Observation]
    ) -> dict[str, str] | None:
        """Raise the priority; never lower the one an orienter's hook has set."""
        severities = [SEVERITIES.index(o.severity) for o in observations if o.severity]
        worst = max(severities, default=0)
        if worst > LEVELS.index(situation.priority):
            return {"priority": LEVELS[worst]}
        return None
