"""An agent with one of everything that the API shows, for tests of its contract.

Its model is at `MODEL_URL`.
"""

from __future__ import annotations

import os
from typing import Any

from pydantic import BaseModel, Field

from boyd import (
    Agent,
    Context,
    Decision,
    Observation,
    Perform,
    Plugin,
    action,
    endpoint,
    observer,
    strategy,
    tool,
)
from boyd.models import EndpointRequest, JsonObject


class Note(BaseModel):
    """Params of the actions that write."""

    text: str = Field(min_length=1)


class Contract(Plugin):
    """Writes notes, some only when a person allows it."""

    id = "contract"

    @observer()
    def look(self) -> list[Observation]:
        """See one thing."""
        return [Observation(source="desk", type="state", data={"notes": 1})]

    @strategy()
    def choose(self, ctx: Context) -> Decision:
        """Write a note in each iteration."""
        params: JsonObject = {"text": f"iteration {ctx.iteration}"}
        return Decision(action="contract:write", params=params, rationale="always", confidence=1.0)

    @action()
    def write(self, params: Note) -> str:
        """Write a note."""
        return f"wrote {params.text}"

    @write.dry_run
    def would_write(self, params: Note) -> str:
        """Tell what would be written."""
        return f"would write {params.text}"

    @write.rollback
    def wipe(self, params: Note, result: Any) -> str:
        """Wipe the note away."""
        return f"wiped {params.text}"

    @action(tool=True, autonomy="approval-required", risk="high")
    def publish(self, params: Note) -> str:
        """Show a note to everybody."""
        return f"published {params.text}"

    @action()
    def tear(self) -> None:
        """Fail."""
        raise RuntimeError("the paper is too strong")

    @tool()
    def read(self, params: Note) -> str:
        """Read a note."""
        return f"read {params.text}"

    @endpoint("GET", "/{name}")
    def note(self, request: EndpointRequest) -> dict[str, str]:
        """Show a note."""
        return {"name": request.path["name"]}

    @endpoint("POST", "/{name}")
    def add(self, request: EndpointRequest) -> Perform:
        """Write a note, through the action."""
        return Perform("contract:write", {"text": request.path["name"]})

    @endpoint("PUT", "/{name}")
    def replace(self, request: EndpointRequest) -> Any:
        """Tell what was sent."""
        return {"sent": request.body}


_MODEL = {"base_url": os.environ.get("MODEL_URL", "http://127.0.0.1:9/v1"), "model": "scripted"}

agent = Agent("contract", plugins=[Contract()], llm=_MODEL)
