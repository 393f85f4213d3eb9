"""How acting that is frozen goes on again, as it has to be typed."""

from __future__ import annotations

from boyd.cli.connection import Api
from boyd.cli.mind import to_type
from boyd.cli.typed import boyd_here
from boyd.errors import ApiProblem
from boyd.goals.results import FROZEN
from boyd.models.answers import AgentList


def frozen_line(api: Api, why: str) -> str:
    """*why* nothing is done, which begins with `FROZEN`, and the command that lifts that."""
    everywhere = why == f"{FROZEN}: {_everywhere(api)}"
    # --all and --agent exclude each other.
    command = f"`{boyd_here()} unfreeze --all`" if everywhere else to_type("unfreeze")
    return f"{why}; {command} lets it go on"


def _everywhere(api: Api) -> str | None:
    """Why acting is frozen everywhere; None: it is not, or this key may not look."""
    try:
        return api.deployment.get("/agents", AgentList).frozen
    except ApiProblem:
        return None
