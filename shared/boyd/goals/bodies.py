"""What requests about goals hold (M16)."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from boyd.models import Model, Triple


def _storable(text: str) -> str:
    if "\x1f" in text or "\0" in text:
        raise ValueError("it holds a control character that no label may have")
    text.encode()
    return text


#: What may become a label of the graph.
Text = Annotated[str, AfterValidator(_storable)]


class NewGoal(Model):
    """A goal to work towards."""

    description: Text
    criteria: Text | None = None
    priority: int = Field(default=128, ge=0, le=255)
    stall_threshold: int | None = Field(default=None, gt=0)


class Reason(Model):
    """Why a goal is put off, taken up or given up."""

    reason: str | None = Field(default=None, max_length=500)


class SessionWanted(Model):
    """Whether to begin anew, or the id of an older session to go on with."""

    fresh: bool = True
    id: str | None = Field(default=None, pattern=r"^[0-9]{1,9}$")


class Priority(Model):
    """How important a goal is."""

    priority: int = Field(ge=0, le=255)


class Focus(Model):
    """The goals that come first whatever their priority; none: all go by their priority."""

    goals: list[str] = Field(max_length=300)


class Answer(Model):
    """An answer to a question."""

    text: Annotated[Text, Field(min_length=1, max_length=10_000)]


class Import(Model):
    """Facts in Turtle."""

    turtle: str = Field(min_length=1)
    source: str | None = Field(default=None, max_length=500)


class Facts(Model):
    """Facts to add."""

    facts: list[Triple] = Field(max_length=10_000)

    @field_validator("facts")
    @classmethod
    def _is_knowledge(cls, facts: list[Triple]) -> list[Triple]:
        for fact in facts:
            if fact.is_metadata:
                raise ValueError("predicates that begin with agent: are the agent's own")
        return facts
