"""`/observations`: what the last iteration saw."""

from __future__ import annotations

from pydantic import Field

from boyd.models import Model, Observation
from boyd_api.past import last_result
from boyd_api.routing import Routes
from boyd_api.serving import Ask

routes = Routes("observations")


class ObservationsQuery(Model):
    """Which ones: `source` is a part of their source, `limit` the most that are shown."""

    limit: int = Field(default=50, ge=1, le=1000)
    source: str | None = Field(default=None, max_length=500)


class ObservationList(Model):
    """Observations; `total` counts all of the iteration, `filtered` those that fit."""

    observations: list[Observation]
    total: int
    filtered: int


@routes.get("/observations", scope="read", answers={200: ObservationList})
def show(ask: Ask, query: ObservationsQuery) -> ObservationList:
    """List what the last iteration saw."""
    last = last_result(ask.agent.store)
    seen = last.observations if last else []
    fitting = [one for one in seen if query.source is None or query.source in one.source]
    return ObservationList(
        observations=fitting[: query.limit], total=len(seen), filtered=len(fitting)
    )
