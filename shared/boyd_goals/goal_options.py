"""The options of the plugin in an agent file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from boyd.models import JsonObject
from boyd.plugin import Plugin
from boyd_goals.psyche import HEAVIEST, LIGHTEST, new_psyche
from boyd_goals.state import Archetype, Config, GoalThresholds, Psyche, ShadowPattern
from boyd_goals.tool_profiles import ToolProfile

_Weight = Annotated[float, Field(ge=LIGHTEST, le=HEAVIEST)]


class ForeignTool(ToolProfile):
    """The profile of another plugin's action, and its fixed params.

    Attributes:
        name: the id of the action, which is also its key.
        params: the params that the agent always calls it with.
    """

    name: str = ""
    params: JsonObject = Field(default_factory=dict)


class GoalOptions(Plugin.Options, GoalThresholds):
    """The plugin's options, with those of `GoalThresholds`.

    Attributes:
        graph: name of the graph of facts.
        graph_of: the agent that owns the graph; this one if absent.
        judge_with_model: let the agent's model, if it has one, judge whether a goal is reached.
        with_psyche: give the agent preferences and a shadow that forbids some actions.
        roots: folders in which files may be read and written; without them, no file may.
        allow_private: allow fetching addresses that are not public.
        tools: profiles of other plugins' actions, by action id.
        archetypes: initial weights of the psyche's archetypes.
        shadow: patterns the shadow forbids or advises against, besides the default ones.
    """

    graph: str = Field(default="facts", pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")
    graph_of: str | None = None
    judge_with_model: bool = True
    with_psyche: bool = True
    roots: list[Path] = Field(default_factory=list)
    allow_private: bool = False
    tools: dict[str, ForeignTool] = Field(default_factory=dict)
    archetypes: dict[Archetype, _Weight] = Field(default_factory=dict)
    shadow: list[ShadowPattern] = Field(default_factory=list)

    @field_validator("tools", mode="before")
    @classmethod
    def _name_tools(cls, tools: Any) -> Any:
        """Name each tool after its key."""
        if not isinstance(tools, Mapping):
            return tools
        return {
            id: {**dict(profile), "name": id}
            if isinstance(profile, Mapping | ToolProfile)
            else profile
            for id, profile in tools.items()
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
        return Config(**{name: getattr(self, name) for name in GoalThresholds.model_fields})
