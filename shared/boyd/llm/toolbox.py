"""The tools of a model: actions marked as tools, and tools of plugins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from boyd.llm.conversation import Conversation, ToolCallRecord
from boyd.llm.loop_detection import ExecutedCall, PlannedCall, result_digest
from boyd.llm.messages import ToolSpec, ToolUse, digest, is_error, parse_json
from boyd.models import JsonObject, explain
from boyd.models.investigation import ToolObservation, call_number
from boyd.plugin import Action, PluginHost, Tool
from boyd.text.redaction import MARK

#: The limits of servers on tool names.
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME = 64
#: The tool that gives an answer in a required form.
ANSWER = "answer"
#: The tool that pages through an output of which the model saw only a part.
READ_OUTPUT = "read_output"
_RESERVED = (ANSWER, READ_OUTPUT)
_ANY: JsonObject = {"type": "object", "properties": {}, "additionalProperties": True}
#: Characters of a page; with its header it fits into what the model sees of any result.
PAGE = 5500
_UNSENDABLE = (
    "Not called: its arguments contain a secret or the placeholder for one. Secrets are not passed "
    "through you: say where the secret is kept, such as in a variable or a file, and let the tool "
    "read it."
)


class Toolbox(Mapping[str, Action | Tool]):
    """The tools of one agent by the names that the model uses.

    A tool is called by its own name, `tail`, or `logs__tail` if another tool has that name. It
    remembers the finished calls of one conversation, which would otherwise be compared anew with
    each step.
    """

    def __init__(self, host: PluginHost, patterns: Sequence[str] = ("*",)) -> None:
        """Collect the tools of *host* whose id, name or plugin matches one of *patterns*."""
        actions = [action for action in host.actions.values() if action.tool]
        tools: list[Action | Tool] = [*actions, *host.tools.values()]
        tools = [tool for tool in tools if _matches(tool, patterns)]
        names = [_legal(tool.name) for tool in tools]
        self._tools = {
            name
            if names.count(name) == 1 and name not in _RESERVED
            else _legal(tool.id.replace(":", "__")): tool
            for name, tool in zip(names, tools, strict=True)
        }
        #: Results and how loop detection compares them, by call id.
        self._finished: dict[str, tuple[ToolObservation, ExecutedCall]] = {}

    def __getitem__(self, name: str) -> Action | Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def specs(self) -> list[ToolSpec]:
        """The tools as the model sees them."""
        return [
            ToolSpec(name=name, description=_describe(tool), parameters=parameters(tool.params))
            for name, tool in self._tools.items()
        ]

    def refusal(self, called: ToolCallRecord) -> str | None:
        """The message to the model if a call cannot be made."""
        name, arguments = called.call.name, called.call.arguments
        if name not in self._tools and name != READ_OUTPUT:
            names = ", ".join(self._tools) or "none"
            return f"There is no tool {name!r}. The tools are: {names}."
        if MARK in arguments:
            return _UNSENDABLE
        if called.arguments is None:
            mistake = "it is not an object" if _is_json(arguments) else "it cannot be parsed"
            begin = arguments[:200]
            return (
                f"Not called: its arguments are not a JSON object ({mistake}). They began: {begin}"
            )
        return None

    def use(self, called: ToolCallRecord) -> ToolUse:
        """The call, with the properties of its tool."""
        name = called.call.name
        tool = self._tools.get(name)
        return ToolUse(
            id=called.call.id,
            name=name,
            arguments=called.call.arguments if called.arguments is None else called.arguments,
            category=tool.category if tool else "search",
            # Reading the next page is neither a new search nor a repeated call.
            poll=name == READ_OUTPUT or getattr(tool, "poll", False),
        )

    def plan(self, called: ToolCallRecord) -> PlannedCall:
        """The call as loop detection compares it before it is made."""
        use = self.use(called)
        return PlannedCall(use.name, use.signature, use.poll, self.refusal(called) is None)

    def call_history(self, conversation: Conversation) -> list[ExecutedCall]:
        """The finished calls as loop detection compares them."""
        return [self._history_entry(called) for called in conversation.finished_calls]

    def _history_entry(self, called: ToolCallRecord) -> ExecutedCall:
        result = called.result
        cached_result, compared = self._finished.get(called.call.id, (None, None))
        if compared is None or cached_result is not result:
            compared = self._to_executed_call(self.use(called), called)
            self._finished[called.call.id] = result, compared
        return compared

    def _to_executed_call(self, use: ToolUse, called: ToolCallRecord) -> ExecutedCall:
        result = called.result
        return ExecutedCall(
            name=use.name,
            signature=use.signature,
            result=result_digest(f"{result.status} {result.exit_code} {result.output}"),
            error=result.output if is_error(result.status) else None,
            poll=use.poll,
            runnable=self.refusal(called) is None,
        )


@lru_cache(maxsize=1000)
def parameters(model: Any) -> JsonObject:
    """The JSON schema of a tool's parameters; any object if it has no model."""
    if model is None:
        return _ANY
    schema: JsonObject = model.model_json_schema(by_alias=True)
    return schema


def _describe(tool: Action | Tool) -> str:
    described = tool.description or tool.title
    if isinstance(tool, Action) and tool.autonomy.mode != "auto":
        return f"{described} (needs a person's approval)"
    return described


def _matches(tool: Action | Tool, patterns: Sequence[str]) -> bool:
    names = (tool.id, tool.name, tool.plugin_id)
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _legal(name: str) -> str:
    legal = _UNFIT.sub("_", name)
    # What is cut off might be all that two names differ in.
    return legal if len(legal) <= _MAX_NAME else f"{legal[: _MAX_NAME - 9]}_{digest(name)[:8]}"


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def answer_spec(schema: JsonObject) -> ToolSpec:
    """The tool that gives an answer which fits *schema*."""
    description = "Give your final answer. Call this once, when you know enough."
    return ToolSpec(name=ANSWER, description=description, parameters=schema)


class ResultPage(BaseModel):
    """Parameters of `read_output`."""

    call: int = Field(ge=1, description="the number of the call, 3 for #3")
    offset: int = Field(default=0, ge=0, description="the first character to show")


def read_output_spec() -> ToolSpec:
    """The tool that pages through an earlier output."""
    return ToolSpec(
        name=READ_OUTPUT,
        description=(
            "Show more of the output of an earlier call that was truncated or omitted to "
            "make room. The call is not repeated."
        ),
        parameters=ResultPage.model_json_schema(),
    )


def read_page(conversation: Conversation, called: ToolCallRecord) -> str:
    """The page of an earlier output that *called* asks for; raises `ValueError` without one."""
    try:
        page = ResultPage.model_validate(called.arguments or {})
    except ValidationError as error:
        raise ValueError(explain(error)) from None
    outputs = {
        call_number(id): observation for id, observation in conversation.observations.items()
    }
    if page.call not in outputs:
        raise ValueError(f"there is no result #{page.call}")
    observation = outputs[page.call]
    size = len(observation.output)
    if page.offset >= max(1, size):
        raise ValueError(f"the output of #{page.call} has {size} characters")
    end = min(size, page.offset + PAGE)
    more = f"; offset={end} continues" if end < size else ", the end"
    total = f" kept of {observation.total_bytes} bytes" if observation.truncated else ""
    head = f"[#{page.call}, characters {page.offset} to {end} of {size}{total}{more}]"
    return f"{head}\n{observation.output[page.offset : end]}"
