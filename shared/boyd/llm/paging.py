"""The tool `read_output`: the model turns the pages of an output that it was shown in part."""

from __future__ import annotations

from pydantic import BaseModel, Field, ValidationError

from boyd.llm.conversation import Called, Conversation
from boyd.llm.messages import ToolSpec
from boyd.llm.toolbox import READ_OUTPUT
from boyd.models import explain
from boyd.models.investigation import ToolObservation, call_number

#: Characters of a page; with what stands around it no more than the model is shown of any result.
PAGE = 5500


class Wanted(BaseModel):
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
        parameters=Wanted.model_json_schema(),
    )


def page(conversation: Conversation, called: Called) -> str:
    """A page of the output that *called* asks for.

    Raises:
        ValueError: there is no such output, or it ends before.
    """
    try:
        wanted = Wanted.model_validate(called.arguments or {})
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
