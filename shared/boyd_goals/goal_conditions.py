"""Criteria in CEL, such as `facts("web-3", "runs-on").size() > 0` or `output.replicas >= 3`.

They know `facts(subject)` and `facts(subject, predicate)`, the facts of the graph, each with
`subject`, `predicate`, `object` and `confidence`; `output`, that of the step; and `tool`, its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from boyd.agent.conditions import ANY, ConditionError, ConditionFunction, Language
from boyd.errors import ConfigError, StoreError
from boyd.models import Model, Triple
from boyd.plugin import Graph
from boyd_goals.knowledge.turtle import GOAL

#: The most symbols whose facts one evaluation reads, and the most facts that a call returns.
_MAX_READS, _MAX_FACTS = 20, 256
# Comparisons, calls with a text, and the names that only conditions have.
_EXPRESSION = re.compile(
    r"[=!<>]=|&&|\|\||\b\w+\(\s*r?[\"']|\bfacts\s*\(|\b(?:has|size)\(|\boutput\s*[<>]|"
    r"\boutput[.\[]\S{0,200}\s{0,9}[<>]|\bin output\b|^\W*output(?:\.\w+)+\s*$"
)
_OUTPUT = re.compile(r"\boutput\b")
_TEXTS = re.compile(r"\"([^\"\\]*)\"|'([^'\\]*)'")


class ConditionResult(Model):
    """The result of a condition after a step.

    Attributes:
        holds: it was evaluated, and is true.
        problem: the reason why it could not be evaluated.
        lines: the facts and the output that it has read.
    """

    holds: bool = False
    problem: str | None = None
    lines: list[str] = Field(default_factory=list)


def is_condition(criteria: str) -> bool:
    """True if criteria are an expression in CEL and not words."""
    return _EXPRESSION.search(criteria) is not None


def check_condition(criteria: str) -> str | None:
    """The mistake in a condition, if it has one, or the package that it needs."""
    try:
        _language(lambda *_: []).compile(criteria)
    except (ConditionError, ConfigError) as error:
        return f"{error}; the names are facts(…), output and tool, and words need no operators"
    return None


def texts_in(criteria: str) -> str:
    """The texts in quotation marks, which name what a condition is about."""
    return " ".join(first or second for first, second in _TEXTS.findall(criteria))


def evaluate_condition(criteria: str, tool: str, output: str, graph: Graph) -> ConditionResult:
    """Evaluate a condition after a successful step.

    Raises:
        StoreError: the graph cannot be read.
    """
    reader = _FactReader(graph)
    values = {"output": _parse(output), "tool": tool}
    try:
        holds = _language(reader.facts).compile(criteria).is_true(values)
    except (ConditionError, ConfigError) as error:
        if reader.failure is not None:
            raise reader.failure from None
        return ConditionResult(problem=str(error))
    lines = [*reader.lines, *(output.splitlines() if _OUTPUT.search(criteria) else [])]
    return ConditionResult(holds=holds, lines=lines if holds else [])


class _FactReader:
    """Reads facts for a condition, each symbol once, and notes those that it has returned."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._about: dict[str, Sequence[Triple]] = {}
        self.lines: list[str] = []
        self.failure: StoreError | None = None

    def facts(self, subject: str, predicate: str | None = None) -> list[dict[str, Any]]:
        """The facts about a symbol, of one predicate or of all, without those of the agent."""
        facts = [fact for fact in self._read(subject) if predicate in (None, fact.predicate)]
        if len(facts) > _MAX_FACTS:
            raise ValueError(f"{subject} has more than {_MAX_FACTS} such facts")
        nothing = [f"{subject} {predicate or ''}".strip() + ": no facts"]
        self.lines += [" ".join(fact.place) for fact in facts] or nothing
        return [
            {
                "subject": fact.subject,
                "predicate": fact.predicate,
                "object": fact.object,
                "confidence": fact.confidence,
            }
            for fact in facts
        ]

    def _read(self, subject: str) -> Sequence[Triple]:
        if subject not in self._about:
            if len(self._about) >= _MAX_READS:
                raise ValueError(f"it reads the facts of more than {_MAX_READS} symbols")
            try:
                every = self._graph.out(subject)
            except StoreError as error:
                self.failure = error
                raise ValueError(str(error)) from error
            self._about[subject] = [
                fact for fact in every if not fact.is_metadata and not fact.subject.startswith(GOAL)
            ]
        return self._about[subject]


def _language(facts: Any) -> Language:
    function = ConditionFunction((("string",), ("string", "string")), "list(map)", facts)
    return Language({"output": ANY, "tool": "string"}, {"facts": function})


def _parse(output: str) -> Any:
    """The output as data if it is a JSON object or array, or else as text."""
    if not output.lstrip().startswith(("{", "[")):
        return output
    try:
        return json.loads(output)
    except (ValueError, RecursionError):  # also what is nested too deep
        return output
