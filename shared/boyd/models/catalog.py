"""What an agent can do, as its workers announce it to processes that do not load its plugins."""

from __future__ import annotations

from boyd.models.action import Autonomy
from boyd.models.base import JsonObject, Level, Model


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
    """An HTTP endpoint of a plugin; `path` lies below the agent's base, with `{name}` parts."""

    plugin: str
    method: str
    path: str
    description: str
    timeout: float


class Catalog(Model):
    """All parts of an agent."""

    observers: list[str] = []
    orienters: list[str] = []
    strategies: list[str] = []
    actions: list[ActionInfo] = []
    endpoints: list[EndpointInfo] = []
