"""What the tools are given."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from boyd.models import Confidence, Model

Label = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]


class QueryParams(Model):
    """What is known about a symbol."""

    symbol: Label
    direction: Literal["both", "out", "into"] = "both"


class MutateParams(Model):
    """A fact to add."""

    subject: Label
    predicate: Label
    object: Label
    confidence: Confidence = 0.8


class RecallParams(Model):
    """What to remember."""

    query_symbols: list[Label] = Field(min_length=1, max_length=20)
    top_k: int = Field(default=5, gt=0, le=50)


class ReasonParams(Model):
    """An expression, as in `(and b a)`."""

    expression: str = Field(min_length=1, max_length=10_000)


class SimilarParams(Model):
    """What to find the like of."""

    symbol: Label
    top_k: int = Field(default=5, gt=0, le=50)


class InferParams(Model):
    """How far to go."""

    max_iterations: int = Field(default=5, gt=0, le=20)
    min_confidence: Confidence = 0.1


class GapParams(Model):
    """What to look around: a symbol, usually a goal."""

    goal: Label
    max_gaps: int = Field(default=10, gt=0, le=100)


class FileParams(Model):
    """What to do with a file below one of the allowed folders."""

    action: Literal["read", "write", "list"] = "read"
    path: str = Field(min_length=1, max_length=4000)
    content: str | None = None


class FetchParams(Model):
    """What to fetch."""

    url: str = Field(min_length=1, max_length=2000)
    timeout: float = Field(default=10.0, gt=0, le=60)


class ShellParams(Model):
    """A command line for bash."""

    command: str = Field(min_length=1, max_length=10_000)
    timeout: float = Field(default=30.0, gt=0, le=600)


class AskParams(Model):
    """What to ask a person."""

    question: str = Field(min_length=1, max_length=2000)


class IngestParams(Model):
    """A text to take in: itself, a file, or an address."""

    title: Annotated[Label, Field(max_length=300)]
    text: str | None = Field(default=None, max_length=1_000_000)
    path: str | None = None
    url: str | None = None


class SearchParams(Model):
    """What to look for."""

    query: str = Field(min_length=1, max_length=2000)
    top_k: int = Field(default=5, gt=0, le=50)
