"""Tool calls and what became of them, as the rules of an investigation see them."""

from __future__ import annotations

from dataclasses import dataclass

from boyd.llm.signature import signature
from boyd.models import JsonObject
from boyd.models.investigation import Category, ToolStatus

#: What a person or a crash did is no error of the model's; these are.
_ERRORS: frozenset[ToolStatus] = frozenset({"failed", "refused"})


@dataclass(frozen=True)
class ToolUse:
    """A call that the model asked for.

    Attributes:
        id: the call's, within its turn.
        name: of the tool, as the model said it.
        arguments: as an object; the text itself where it is none.
        category: what kind of work the tool does.
        poll: whether calling it again and again is how it is used.
    """

    id: str
    name: str
    arguments: JsonObject | str
    category: Category
    poll: bool = False

    @property
    def signature(self) -> str:
        """What tells this call from others."""
        return signature(self.name, self.arguments)


@dataclass(frozen=True)
class ToolOutcome:
    """The one result of a call; `text` is redacted."""

    call_id: str
    status: ToolStatus
    text: str
    counts_as_error: bool

    @property
    def succeeded(self) -> bool:
        """Whether the call ran and did what it was to do."""
        return self.status == "succeeded" and not self.counts_as_error


def is_error(status: ToolStatus) -> bool:
    """Whether a result counts as an error of what the model wanted."""
    return status in _ERRORS
