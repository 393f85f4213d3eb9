"""An event-driven agent that notes the fingerprint of each alert that it observes in `EFFECTS`."""

from __future__ import annotations

import os
from pathlib import Path

from boyd import Agent, Observation, Plugin, SituationAssessment, orienter

EFFECTS = Path(os.environ.get("EFFECTS", "/dev/null"))


class Inbox(Plugin):
    """Sees nothing itself."""

    id = "inbox"

    @orienter()
    def read(self, observations: list[Observation]) -> SituationAssessment:
        """Note what has come."""
        with EFFECTS.open("a") as file:
            file.writelines(f"{observation.data['fingerprint']}\n" for observation in observations)
        return SituationAssessment(source="inbox:read", findings=["noted"], confidence=1.0)


inbox = Agent("inbox", mode="event-driven", plugins=[Inbox()])
