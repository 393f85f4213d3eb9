"""The tools that a model may use: an agent's actions marked as tools, and what plugins give."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from boyd.llm.conversation import Conversation, ToolCallRecord
from boyd.llm.messages import ToolSpec
from boyd.models import JsonObject, explain
from boyd.models.investigation import ToolObservation, call_number
from boyd.plugin import Action, PluginHost, Tool

#: What servers take for a tool's name.
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 64
#: The tool with which an answer is given that has to fit a schema.
ANSWER = "answer"
#: The tool with which the model reads on in an output that it was shown in part.
READ_OUTPUT = "read_output"
#: Names that Boyd uses itself.
_TAKEN = (ANSWER, READ_OUTPUT)
_ANY: JsonObject = {"type": "object", "properties": {}, "additionalProperties": True}


class Toolbox(Mapping[str, Action | Tool]):
    """The tools of one agent by the names that the model knows them by.

    A tool is called by its own name, `tail`; one whose name another has too, by `logs__tail`.
    """

    def __init__(self, host: PluginHost, patterns: Sequence[str] = ("*",)) -> None:
        """Take those tools of *host* whose id or name fits one of *patterns*."""
        actions = [action for action in host.actions.values() if action.tool]
        parts: list[Action | Tool] = [*actions, *host.tools.values()]
        parts = [part for part in parts if _fits(part, patterns)]
        plain = [_fit(part.name) for part in parts]
        self._tools = {
            name if plain.count(name) == 1 and name not in _TAKEN else _fit(_whole(part)): part
            for name, part in zip(plain, parts, strict=True)
        }

    def __getitem__(self, name: str) -> Action | Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def specs(self) -> list[ToolSpec]:
        """What the model is told of them."""
        return [
            ToolSpec(name=name, description=_described(tool), parameters=parameters(tool.params))
            for name, tool in self._tools.items()
        ]


def parameters(model: Any) -> JsonObject:
    """The JSON schema of a tool's parameters; anything when it has no model."""
    if model is None:
        return _ANY
    schema: JsonObject = model.model_json_schema(by_alias=True)
    return schema


def answer_spec(schema: JsonObject) -> ToolSpec:
    """The tool with which an answer is given that has to fit *schema*."""
    said = "Give your final answer. Call this once, when you have found out enough."
    return ToolSpec(name=ANSWER, description=said, parameters=schema)


def _described(tool: Action | Tool) -> str:
    described = tool.description or tool.title
    if isinstance(tool, Action) and tool.autonomy.mode != "auto":
        return f"{described} (a person is asked first)"
    return described


def _fits(part: Action | Tool, patterns: Sequence[str]) -> bool:
    names = (part.id, part.name, part.plugin_id)
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _whole(part: Action | Tool) -> str:
    return part.id.replace(":", "__")


def _fit(name: str) -> str:
    return _UNFIT.sub("_", name)[:_LONGEST]


#: Characters of a page; with what stands around it no more than the model is shown of any result.
PAGE = 5500


class PageRequest(BaseModel):
    """Where to read."""

    call: int = Field(ge=1, description="the number of the call, 3 for #3")
    offset: int = Field(default=0, ge=0, description="the first character to show")


def spec() -> ToolSpec:
    """What the model is told of the tool."""
    return ToolSpec(
        name=READ_OUTPUT,
        description=(
            "Show more of the output of an earlier call, where you were shown a part or it was "
            "left out to make room. Nothing is called again."
        ),
        parameters=PageRequest.model_json_schema(),
    )


def page(conversation: Conversation, called: ToolCallRecord) -> str:
    """A page of the output that *called* asks for.

    Raises:
        ValueError: there is no such output, or it ends before.
    """
    try:
        wanted = PageRequest.model_validate(called.arguments or {})
    except ValidationError as error:
        raise ValueError(explain(error)) from None
    seen = _output(conversation, wanted.call)
    size = len(seen.output)
    if wanted.offset >= max(1, size):
        raise ValueError(f"the output of #{wanted.call} has {size} characters")
    end = min(size, wanted.offset + PAGE)
    on = f"; offset={end} goes on" if end < size else ", which is its end"
    kept = f" that are kept of {seen.total_bytes} bytes" if seen.truncated else ""
    head = f"[#{wanted.call}, characters {wanted.offset} to {end} of {size}{kept}{on}]"
    return f"{head}\n{seen.output[wanted.offset : end]}"


def _output(conversation: Conversation, number: int) -> ToolObservation:
    for call_id, seen in conversation.observations.items():
        if call_number(call_id) == number:
            return seen
    raise ValueError(f"there is no result #{number}")
