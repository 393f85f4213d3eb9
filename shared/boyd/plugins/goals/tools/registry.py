"""The tools of an agent: the bundle's own, and actions of other plugins that have a profile."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from boyd.models import Catalog, JsonObject, Level, Model
from boyd.plugins.goals import psyche
from boyd.plugins.goals.goal_options import GoalOptions, misfit
from boyd.plugins.goals.state import Danger, Goal
from boyd.plugins.goals.tool_profiles import PROFILES, ToolProfile
from boyd.plugins.goals.tools.files import Files
from boyd.plugins.goals.tools.params import params_for

_DANGERS: dict[Level, Danger] = {
    "low": "Safe",
    "medium": "Cautious",
    "high": "Danger",
    "critical": "Danger",
}


class KnownTool(ToolProfile):
    """A tool as it is told of: with the action that it is, and what that is always given."""

    action: str
    params: JsonObject | None = None


class ToolList(Model):
    """All tools."""

    tools: list[KnownTool]


class GoalToolbox:
    """What each tool is for, which action it is, what it is given, and what it may do."""

    def __init__(self, plugin_id: str, options: GoalOptions) -> None:
        """Own tools are actions of the plugin *plugin_id*."""
        self._plugin_id = plugin_id
        self._foreign = options.tools
        self.profiles: dict[str, ToolProfile] = {**PROFILES, **options.tools}
        self.files = Files(options.roots)

    @property
    def listed(self) -> ToolList:
        """All of them, those of other plugins last."""
        every = self.profiles.items()
        return ToolList(
            tools=[KnownTool(**dict(one), action=self.action_of(name)) for name, one in every]
        )

    def action_of(self, tool: str) -> str:
        """The id of the action that a tool is."""
        return tool if ":" in tool else f"{self._plugin_id}:{tool}"

    def tool_of(self, action: str) -> str | None:
        """The tool that an action is; None: it is none."""
        if action in self.profiles:
            return action if ":" in action else None
        plugin, _, name = action.partition(":")
        return name if plugin == self._plugin_id and name in self.profiles else None

    def danger_of(self, action: str, risk: Level, params: Mapping[str, Any]) -> Danger:
        """The worst that an action may do with those params (M5)."""
        tool = self.tool_of(action)
        if tool is None:
            return _DANGERS[risk]
        if tool == "file_io" and params.get("action") == "write":
            return "Danger"
        known = self.profiles[tool].danger
        # A profile for another plugin's action may say less than its author.
        return known if tool in PROFILES else max(known, _DANGERS[risk], key=psyche.DANGERS.index)

    def params_of(self, tool: str, goal: Goal, found: JsonObject) -> JsonObject | None:
        """What a tool is given for a goal; None: it cannot be used for it.

        That is what scoring has *found*, or what the goal says; for a tool of another plugin what
        the options say.
        """
        if ":" in tool:
            return self._foreign[tool].params
        params = params_for(tool, goal, found)
        path = params.get("path") if params else None
        return params if not isinstance(path, str) or self.files.allows(path) else None

    def misfits(self, catalog: Catalog) -> list[str]:
        """What the options say of actions that are not in the *catalog*, or do not take that."""
        schemas = {one.id: one.params for one in catalog.actions}
        found = {id: self._misfit(id, schemas) for id in self._foreign}
        return [f"tools.{json.dumps(id)}{why}" for id, why in found.items() if why]

    def _misfit(self, tool: str, schemas: Mapping[str, JsonObject | None]) -> str | None:
        action = self.action_of(tool)
        if action not in schemas:
            return f": the agent has no action {action!r}{_near(action, schemas)}"
        if ":" not in tool:  # one of its own, which is given what scoring finds
            return None
        why = misfit(self._foreign[tool].params, schemas[action] or {})
        return f".params: {why}" if why else None


def _near(action: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(action, known, 3, 0)
    return f"; the nearest that it has: {', '.join(near)}"
