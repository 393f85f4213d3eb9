"""What an agent file may say of the bundle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from boyd.goals.profiles import ToolProfile
from boyd.goals.shapes import Config
from boyd.models import JsonObject
from boyd.plugin import Plugin


class ForeignTool(ToolProfile):
    """What is to be known of an action of another plugin: a profile, and what the action is given.

    Attributes:
        params: the same each time, named as in the action's schema.
    """

    params: JsonObject = Field(default_factory=dict)


class GoalOptions(Plugin.Options):
    """The plugin's options.

    Attributes:
        graph: the name of the graph of facts.
        graph_of: the agent whose graph it is; absent: this one's own.
        with_psyche: whether it has leanings and a shadow that forbids some things.
        roots: the folders below which files may be read and written; none: no file may.
        allow_private: whether addresses that are not public may be fetched.
        tools: what scoring must know of actions of other plugins, by their ids.
        working_memory_capacity: how many entries working memory holds.
        auto_consolidate: whether memory consolidates by itself when it is nearly full.
        max_cycles: how many cycles a session may have.
        max_backtrack_attempts: how many plans of a goal may fail.
        stall_threshold: cycles without progress before a goal is split, unless it says.
        completion_ratio: the share of its keywords that completes a goal.
        reflect_every: cycles from one reflection to the next; 0: never.
    """

    graph: str = Field(default="facts", pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")
    graph_of: str | None = None
    with_psyche: bool = True
    roots: list[Path] = Field(default_factory=list)
    allow_private: bool = False
    tools: dict[str, ForeignTool] = Field(default_factory=dict)
    working_memory_capacity: int = Field(default=100, gt=0, le=1000)
    auto_consolidate: bool = True
    max_cycles: int = Field(default=1000, gt=0)
    max_backtrack_attempts: int = Field(default=3, gt=0)
    stall_threshold: int = Field(default=5, gt=0)
    completion_ratio: float = Field(default=0.5, gt=0, le=1)
    reflect_every: int = Field(default=5, ge=0)

    @field_validator("tools", mode="before")
    @classmethod
    def _named(cls, tools: Any) -> Any:
        """A tool's name is the id that it stands under, whether it is written again or not."""
        if not isinstance(tools, Mapping):
            return tools
        return {
            id: {**dict(given), "name": id} if isinstance(given, Mapping | ToolProfile) else given
            for id, given in tools.items()
        }

    @property
    def config(self) -> Config:
        """How it works; what no option says is as in `Config`."""
        names = set(Config.model_fields) & set(type(self).model_fields)
        return Config(**{name: getattr(self, name) for name in names})
