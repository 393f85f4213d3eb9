"""The options of the plugin in an agent file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from boyd.models import JsonObject
from boyd.plugin import Plugin
from boyd.plugins.goals.psyche import HEAVIEST, LIGHTEST, new_psyche
from boyd.plugins.goals.state import Archetype, Config, Psyche, ShadowPattern
from boyd.plugins.goals.tool_profiles import ToolProfile


class ForeignTool(ToolProfile):
    """The profile of another plugin's action, and its fixed params.

    `name` is the id of the action, which is also its key.
    """

    name: str = ""
    params: JsonObject = Field(default_factory=dict)


class GoalOptions(Plugin.Options):
    """The plugin's options.

    Attributes:
        graph: name of the graph of facts.
        graph_of: the agent that owns the graph; this one if absent.
        with_psyche: give the agent preferences and a shadow that forbids some actions.
        roots: folders in which files may be read and written; without them, no file may.
        allow_private: allow fetching addresses that are not public.
        tools: profiles of other plugins' actions, by action id.
        working_memory_capacity: number of entries working memory holds.
        auto_consolidate: consolidate automatically when memory is nearly full.
        consolidate_above: share of memory above which it consolidates.
        consolidate_down_to: share of memory in use afterwards.
        min_relevance: least value of an entry to become an episode.
        low_relevance: a full memory first drops its oldest entry below this relevance.
        max_cycles: number of cycles per session.
        max_backtrack_attempts: number of plans that may fail before the goal does.
        stall_threshold: cycles without progress before a goal is split.
        completion_ratio: share of its keywords that completes a goal.
        reflect_every: cycles between reflections; 0 turns them off.
        min_tool_success_rate: a tool below this rate is ineffective.
        stagnation_threshold: cycles without progress before a goal loses priority.
        archetypes: initial weights of the psyche's archetypes.
        shadow: patterns the shadow forbids or advises against, besides the default ones.
    """

    graph: str = Field(default="facts", pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")
    graph_of: str | None = None
    with_psyche: bool = True
    roots: list[Path] = Field(default_factory=list)
    allow_private: bool = False
    tools: dict[str, ForeignTool] = Field(default_factory=dict)
    working_memory_capacity: int = Field(default=100, gt=0, le=1000)
    auto_consolidate: bool = True
    consolidate_above: float = Field(default=0.8, ge=0, le=1)
    consolidate_down_to: float = Field(default=0.5, ge=0, le=1)
    min_relevance: float = Field(default=0.5, ge=0, le=1)
    low_relevance: float = Field(default=0.5, ge=0, le=1)
    max_cycles: int = Field(default=1000, gt=0)
    max_backtrack_attempts: int = Field(default=3, gt=0)
    stall_threshold: int = Field(default=5, gt=0)
    completion_ratio: float = Field(default=0.5, gt=0, le=1)
    reflect_every: int = Field(default=5, ge=0)
    min_tool_success_rate: float = Field(default=0.3, ge=0, le=1)
    stagnation_threshold: int = Field(default=8, gt=0)
    archetypes: dict[Archetype, Annotated[float, Field(ge=LIGHTEST, le=HEAVIEST)]] = Field(
        default_factory=dict
    )
    shadow: list[ShadowPattern] = Field(default_factory=list)

    @field_validator("tools", mode="before")
    @classmethod
    def _named(cls, tools: Any) -> Any:
        """Name each tool after its key."""
        if not isinstance(tools, Mapping):
            return tools
        return {
            id: {**dict(given), "name": id} if isinstance(given, Mapping | ToolProfile) else given
            for id, given in tools.items()
        }

    @field_validator("shadow", mode="before")
    @classmethod
    def _matching(cls, shadow: Any) -> Any:
        """Reject patterns that could never match."""
        for pattern in shadow if isinstance(shadow, list) else []:
            if isinstance(pattern, Mapping) and not ({"danger", "triggers"} & pattern.keys()):
                raise ValueError("a pattern needs triggers or a danger")
        return shadow

    @model_validator(mode="after")
    def _frees_memory(self) -> Self:
        if self.consolidate_down_to > self.consolidate_above:
            raise ValueError("consolidate_down_to is greater than consolidate_above")
        return self

    @property
    def psyche(self) -> Psyche | None:
        """The initial psyche, whose shadow never changes."""
        return new_psyche(self.archetypes, self.shadow) if self.with_psyche else None

    @property
    def config(self) -> Config:
        """The limits and thresholds, with defaults for those that are not options."""
        names = set(Config.model_fields) & set(type(self).model_fields)
        return Config(**{name: getattr(self, name) for name in names})
