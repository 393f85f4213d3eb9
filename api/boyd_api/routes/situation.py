"""`/situation`: what the observations mean."""

from __future__ import annotations

from boyd.models import Model, Situation
from boyd_api.past import last_situation
from boyd_api.routing import Routes
from boyd_api.serving import Ask, not_found

routes = Routes("situation")


class CurrentSituation(Model):
    """The situation as it was understood last."""

    situation: Situation


@routes.get("/situation", scope="read", answers={200: CurrentSituation}, problems=["not-found"])
def show(ask: Ask) -> CurrentSituation:
    """Show the situation as the agent understood it last."""
    situation = last_situation(ask.agent.store)
    if situation is None:
        raise not_found("no iteration has come to a situation yet")
    return CurrentSituation(situation=situation)
