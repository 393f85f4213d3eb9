"""An agent that keeps little, and does everything that leaves something in Redis."""

from __future__ import annotations

from agents.storm import Numbered
from boyd import (
    Agent,
    Context,
    Decision,
    Observation,
    Plugin,
    SituationAssessment,
    action,
    observer,
    orienter,
    strategy,
)

#: How many iterations, runs and approvals are kept.
KEPT = 50
#: One iteration in so many asks for an approval.
ASKS = 10


class Soak(Plugin):
    """Remembers, acts, and now and then asks."""

    id = "soak"

    @observer()
    def look(self, ctx: Context) -> list[Observation]:
        """See a number, and remember one of a few."""
        number = ctx.iteration or 0
        ctx.state.set(f"slot:{number % 10}", number)
        return [Observation(source="look", type="metric", data={"number": number})]

    @orienter()
    def read(self, observations: list[Observation]) -> SituationAssessment:
        """Count."""
        finding = f"{len(observations)} seen"
        return SituationAssessment(source="soak:read", findings=[finding], confidence=1.0)

    @strategy()
    def choose(self, ctx: Context) -> Decision:
        """Act, or ask."""
        number = ctx.iteration or 0
        action_id = "soak:write" if number % ASKS == 0 else "soak:act"
        return Decision(
            action=action_id, params={"number": number}, rationale="soak", confidence=1.0
        )

    @action()
    def act(self, params: Numbered) -> str:
        """Do nothing."""
        return "done"

    @action(autonomy="approval-required")
    def write(self, params: Numbered) -> str:
        """Do nothing, once somebody allows it."""
        return "done"

    def on_approval(self, approval: object, stage: str, ctx: Context) -> None:
        """Be told, so that notices are kept too."""


soak = Agent(
    "soak",
    mode="event-driven",
    plugins=[Soak()],
    approvals={"max_history": KEPT, "ttl": 60},
    history={"max_count": KEPT},
    runs={"max_finished": KEPT},
)
