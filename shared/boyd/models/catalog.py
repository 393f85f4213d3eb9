"""What an agent can do, as its workers announce it to processes that do not load its plugins."""

from __future__ import annotations

from pydantic import Field

from boyd.models.base import JsonObject, Level, Model
from boyd.models.decision import Autonomy


class ActionInfo(Model):
    """An action; `params` is the JSON Schema of its parameters, times are in seconds."""

    id: str
    name: str
    description: str
    risk: Level
    autonomy: Autonomy
    params: JsonObject | None = None
    timeout: float
    idempotent: bool = False
    queue: str | None = None
    dry_run: bool = False
    rollback: bool = False


class EndpointInfo(Model):
    """An HTTP endpoint of a plugin; `path` lies below `/plugins/<plugin>`, with `{name}` parts."""

    id: str
    plugin: str
    method: str
    path: str
    description: str
    timeout: float
    queue: str | None = None

    def match(self, path: str) -> dict[str, str] | None:
        """The values of the path's parts when *path* fits; None when it does not."""
        ours, theirs = self.path.split("/"), path.split("/")
        if len(ours) != len(theirs):
            return None
        values = {}
        for part, text in zip(ours, theirs, strict=True):
            if part.startswith("{") and text:
                values[part[1:-1]] = text
            elif part != text:
                return None
        return values


class Catalog(Model):
    """All parts of an agent."""

    observers: list[str] = Field(default_factory=list)
    orienters: list[str] = Field(default_factory=list)
    strategies: list[str] = Field(default_factory=list)
    actions: list[ActionInfo] = Field(default_factory=list)
    endpoints: list[EndpointInfo] = Field(default_factory=list)
