"""The toolbox: own tools and profiled actions of other plugins, with their params for a goal."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from boyd.models import LEVELS, Catalog, Confidence, JsonObject, Level, Model
from boyd.text.tokenizer import stem
from boyd_goals.criteria import words_in
from boyd_goals.library import Files
from boyd_goals.progress import (
    criterion_of,
    find_command,
    find_path,
    find_url,
    own_acts,
    question_in,
    verb_of,
)
from boyd_goals.psyche import DANGERS
from boyd_goals.state import Danger, Goal
from boyd_goals.statements import is_done
from boyd_goals.tool_profiles import PROFILES, ToolProfile

_DANGERS: dict[Level, Danger] = dict(zip(LEVELS, (*DANGERS, "Danger"), strict=True))
#: Errors of jsonschema that name fields and show no value.
_NAMING = ("required", "additionalProperties")

Label = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]


class QueryParams(Model):
    """A symbol to look up."""

    symbol: Label
    direction: Literal["both", "out", "into"] = "both"


class MutateParams(Model):
    """A fact to add."""

    subject: Label
    predicate: Label
    object: Label
    confidence: Confidence = 0.8


class RecallParams(Model):
    """Symbols to recall episodes about."""

    query_symbols: list[Label] = Field(min_length=1, max_length=20)
    top_k: int = Field(default=5, gt=0, le=50)


class ReasonParams(Model):
    """An expression, as in `(and b a)`."""

    expression: str = Field(min_length=1, max_length=10_000)


class SimilarParams(Model):
    """A symbol to find similar ones of."""

    symbol: Label
    top_k: int = Field(default=5, gt=0, le=50)


class InferParams(Model):
    """Limits of the inference."""

    max_iterations: int = Field(default=5, gt=0, le=20)
    min_confidence: Confidence = 0.1


class GapParams(Model):
    """The symbol to search around, usually a goal."""

    goal: Label
    max_gaps: int = Field(default=10, gt=0, le=100)


class FileParams(Model):
    """An operation on a file below one of the allowed folders."""

    action: Literal["read", "write", "list"] = "read"
    path: str = Field(min_length=1, max_length=4000)
    content: str | None = None


class FetchParams(Model):
    """An address to fetch."""

    url: str = Field(min_length=1, max_length=2000)
    timeout: float = Field(default=10.0, gt=0, le=60)


class ShellParams(Model):
    """A command line for bash."""

    command: str = Field(min_length=1, max_length=10_000)
    timeout: float = Field(default=30.0, gt=0, le=600)


class AskParams(Model):
    """A question to a person."""

    question: str = Field(min_length=1, max_length=2000)


class IngestParams(Model):
    """A document to ingest, given as text, file or address."""

    title: Annotated[Label, Field(max_length=300)]
    text: str | None = Field(default=None, max_length=1_000_000)
    path: str | None = None
    url: str | None = None


class SearchParams(Model):
    """Words to find in the library."""

    query: str = Field(min_length=1, max_length=2000)
    top_k: int = Field(default=5, gt=0, le=50)


class ForeignTool(ToolProfile):
    """The profile of another plugin's action, and its fixed params.

    Attributes:
        name: the id of the action, which is also its key.
        params: the params that the agent always calls it with.
    """

    name: str = ""
    params: JsonObject = Field(default_factory=dict)


class KnownTool(ToolProfile):
    """A tool in a list, with its action and its fixed params."""

    action: str
    params: JsonObject | None = None


class ToolList(Model):
    """All tools."""

    tools: list[KnownTool]


class GoalToolbox:
    """The tools of an agent: their profiles, actions, params and dangers."""

    def __init__(
        self, plugin_id: str, foreign: Mapping[str, ForeignTool], roots: Sequence[Path]
    ) -> None:
        self._plugin_id = plugin_id
        self._foreign = foreign
        self.profiles: dict[str, ToolProfile] = {**PROFILES, **foreign}
        self.files = Files(roots)

    @property
    def tool_list(self) -> ToolList:
        """All tools, those of other plugins last."""
        every = self.profiles.items()
        return ToolList(
            tools=[
                KnownTool(**dict(profile), action=self.action_of(name)) for name, profile in every
            ]
        )

    def action_of(self, tool: str) -> str:
        """The id of the action of a tool."""
        return tool if ":" in tool else f"{self._plugin_id}:{tool}"

    def tool_of(self, action: str) -> str | None:
        """The tool of an action, if it has one."""
        if action in self.profiles:
            return action if ":" in action else None
        plugin, _, name = action.partition(":")
        return name if plugin == self._plugin_id and name in self.profiles else None

    def danger_of(self, action: str, risk: Level, params: Mapping[str, Any]) -> Danger:
        """The danger of an action with those params."""
        tool = self.tool_of(action)
        if tool is None:
            return _DANGERS[risk]
        if tool == "file_io" and params.get("action") == "write":
            return "Danger"
        danger = self.profiles[tool].danger
        # The profile of another plugin's action must not play down its risk.
        return danger if tool in PROFILES else max(danger, _DANGERS[risk], key=DANGERS.index)

    def params_of(self, tool: str, goal: Goal, scored: JsonObject) -> JsonObject | None:
        """The params of a tool for a goal, or None if the tool cannot be used for it.

        Own tools use *scored*, the params from scoring, or those the goal names; a tool of another
        plugin uses those in the options.
        """
        if ":" in tool:
            return self._foreign[tool].params
        params = params_for(tool, goal, scored)
        path = params.get("path") if params else None
        return params if not isinstance(path, str) or self.files.allows(path) else None

    def is_act(self, tool: str, goal: Goal, output: str) -> bool:
        """True if the tool has done what the goal wants done.

        The profile of another plugin's action names the verb of the goal among its keywords; what
        is to be done it to is there, too, or in the params or the output. Own tools fail if they
        have not done it; the output of others must not say so.
        """
        verb = verb_of(goal)
        if verb is None or ":" not in tool:
            return tool in own_acts(goal)
        profile = self._foreign[tool]
        keywords = " ".join(profile.keywords)
        if stem(verb) not in {stem(word) for word in profile.keywords} or not is_done(output):
            return False
        return _names_object(goal, verb, f"{keywords} {json.dumps(profile.params)} {output}")

    def errors(self, catalog: Catalog) -> list[str]:
        """Errors in the options: actions missing from the *catalog*, and params they reject."""
        schemas = {action.id: action.params for action in catalog.actions}
        problems = {id: self._error(id, schemas) for id in self._foreign}
        return [f"tools.{json.dumps(id)}{problem}" for id, problem in problems.items() if problem]

    def _error(self, tool: str, schemas: Mapping[str, JsonObject | None]) -> str | None:
        action = self.action_of(tool)
        if action not in schemas:
            near = ", ".join(difflib.get_close_matches(action, schemas, 3, 0))
            return f": the agent has no action {action!r}; the nearest ones are {near}"
        if ":" not in tool:  # one of its own, which scoring gives params
            return None
        problem = _params_error(self._foreign[tool].params, schemas[action] or {})
        return f".params: {problem}" if problem else None


def _names_object(goal: Goal, verb: str, text: str) -> bool:
    """True if a text names what a goal wants to be done something to.

    It has all names, and half of the other words.
    """
    wish, words = criterion_of(goal.description), words_in(text)
    mandatory = wish.names | {number for number, _ in wish.numbers}
    others = frozenset(wish.words) - wish.general - mandatory - {stem(verb)}
    return mandatory <= words and len(others & words) * 2 >= len(others)


def _params_error(params: JsonObject, schema: JsonObject) -> str | None:
    """The most relevant validation error, without the value, which may be a secret."""
    # Imported late: agents without tools of other plugins start without it.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema).iter_errors(params))
    if error is None:
        return None
    place = ".".join(map(str, error.absolute_path))
    before = f"{place}: " if place else ""
    if error.validator in _NAMING:
        return f"{before}{error.message}"
    return f"{before}expected {error.validator} {json.dumps(error.validator_value)}"


def params_for(tool: str, goal: Goal, scored: JsonObject) -> JsonObject | None:
    """The params of *tool*: *scored*, from scoring, or those the goal names."""
    if scored:
        return scored
    return _INPUTS[tool](goal) if tool in _INPUTS else {}


def digest(params: JsonObject) -> str:
    """A short hash of *params*, to compare calls."""
    canonical = json.dumps(params, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _file_io(goal: Goal) -> JsonObject | None:
    path = find_path(goal.description)
    return {"action": "read", "path": path} if path else None


def _http_fetch(goal: Goal) -> JsonObject | None:
    url = find_url(goal.description)
    return {"url": url} if url else None


def _shell_exec(goal: Goal) -> JsonObject | None:
    command = find_command(goal.description)
    return {"command": command} if command else None


def _user_interact(goal: Goal) -> JsonObject | None:
    # Never ask twice, answered or not.
    if goal.question is not None or goal.used.get("user_interact", 0) > 0:
        return None
    helps = f'What can you tell me that helps with the goal "{goal.description}"?'
    return {"question": question_in(goal.description) or helps}


def _content_ingest(goal: Goal) -> JsonObject | None:
    url, path = find_url(goal.description), find_path(goal.description)
    if url:
        return {"title": url[:300], "url": url}
    return {"title": path[:300], "path": path} if path else None


_INPUTS: dict[str, Callable[[Goal], JsonObject | None]] = {
    "file_io": _file_io,
    "http_fetch": _http_fetch,
    "shell_exec": _shell_exec,
    "user_interact": _user_interact,
    "content_ingest": _content_ingest,
    "library_search": lambda goal: {"query": goal.description, "top_k": 5},
    "infer_rules": lambda goal: {"max_iterations": 5, "min_confidence": 0.1},
}
