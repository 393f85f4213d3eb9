"""How acting that is frozen goes on again, as it has to be typed."""

from __future__ import annotations

from boyd.cli.api_access import Api
from boyd.cli.goals_client import to_type
from boyd.cli.output import command_name
from boyd.errors import ApiProblem
from boyd.models.responses import AgentList
from boyd.plugins.goals.outcome import FROZEN


def frozen_line(api: Api, why: str) -> str:
    """*why* nothing is done, which begins with `FROZEN`, and the command that lifts that."""
    everywhere = why == f"{FROZEN}: {_everywhere(api)}"
    # --all and --agent exclude each other.
    command = f"`{command_name()} unfreeze --all`" if everywhere else to_type("unfreeze")
    return f"{why}; {command} lets it go on"


def _everywhere(api: Api) -> str | None:
    """Why acting is frozen everywhere; None: it is not, or this key may not look."""
    try:
        return api.deployment.get("/agents", AgentList).frozen
    except ApiProblem:
        return None
