"""Facts, as a graph of them holds them."""

from __future__ import annotations

from typing import TypeAlias

from pydantic import Field

from boyd.models.base import Confidence, Model

#: Where a fact is in a graph: subject, predicate, object.
Place: TypeAlias = tuple[str, str, str]


class Triple(Model):
    """A fact, how sure it is, and where it comes from (M11).

    What a predicate that begins with `agent:` says is how the agent works, and no knowledge.
    """

    subject: str = Field(min_length=1, max_length=1000)
    predicate: str = Field(min_length=1, max_length=1000)
    object: str = Field(min_length=1, max_length=1000)
    confidence: Confidence = 1.0
    source: str | None = Field(default=None, max_length=1000)

    @property
    def place(self) -> Place:
        """What names the fact: its subject, predicate and object."""
        return (self.subject, self.predicate, self.object)

    @property
    def is_metadata(self) -> bool:
        """Whether it is about how the agent works."""
        return self.predicate.startswith("agent:")
