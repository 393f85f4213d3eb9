"""What an agent file may say of the bundle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from boyd.models import JsonObject
from boyd.plugin import Plugin
from boyd.plugins.goals.psyche import new_psyche
from boyd.plugins.goals.scoring import HEAVIEST, LIGHTEST
from boyd.plugins.goals.state import Archetype, Config, Psyche, ShadowPattern
from boyd.plugins.goals.tool_profiles import ToolProfile

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError


class ForeignTool(ToolProfile):
    """What is to be known of an action of another plugin: a profile, and what the action is given.

    Attributes:
        name: the id of the action; it stands under that anyway.
        params: the same each time, named as in the action's schema.
    """

    name: str = ""
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
        consolidate_above: how full working memory is when it consolidates: more than this share.
        consolidate_down_to: how full it is afterwards.
        min_relevance: what an entry of working memory must be worth to become an episode.
        low_relevance: of a full memory the oldest entry below this relevance goes first.
        max_cycles: how many cycles a session may have.
        max_backtrack_attempts: how many plans of a goal may fail.
        stall_threshold: cycles without progress before a goal is split, unless it says.
        completion_ratio: the share of its keywords that completes a goal.
        reflect_every: cycles from one reflection to the next; 0: never.
        min_tool_success_rate: a tool that succeeds less often is ineffective.
        stagnation_threshold: cycles without progress after which a goal loses priority.
        archetypes: how much the sides of the psyche weigh at first, as far as it is said.
        shadow: what the shadow forbids, or would rather not do, besides what it always does.
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
        """A tool's name is the id that it stands under, whether it is written again or not."""
        if not isinstance(tools, Mapping):
            return tools
        return {
            id: {**dict(given), "name": id} if isinstance(given, Mapping | ToolProfile) else given
            for id, given in tools.items()
        }

    @field_validator("shadow", mode="before")
    @classmethod
    def _matching(cls, shadow: Any) -> Any:
        """A pattern without triggers and danger matches nothing."""
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
        """The psyche that the agent begins with; its shadow is the same ever after."""
        return new_psyche(self.archetypes, self.shadow) if self.with_psyche else None

    @property
    def config(self) -> Config:
        """How it works; what no option says is as in `Config`."""
        names = set(Config.model_fields) & set(type(self).model_fields)
        return Config(**{name: getattr(self, name) for name in names})


#: What jsonschema says of these names what is missing or too much, and no value.
_NAMING = ("required", "additionalProperties")


def misfit(params: JsonObject, schema: JsonObject) -> str | None:
    """What is most wrong about *params*; None: they fit."""
    # Agents without tools of other plugins start without it.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema).iter_errors(params))
    return _told(error) if error else None


def _told(error: ValidationError) -> str:
    """Which name is wrong, and what is wanted of it: a value may be a secret that does not fit."""
    place = ".".join(map(str, error.absolute_path))
    before = f"{place}: " if place else ""
    if error.validator in _NAMING:
        return f"{before}{error.message}"
    return f"{before}wanted is {error.validator} {json.dumps(error.validator_value)}"
