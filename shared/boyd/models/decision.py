"""Decisions and their traces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

from pydantic import Field
from pydantic.alias_generators import to_camel

from boyd.models.base import Confidence, JsonObject, Level, Model

NO_OP = "no-op"


class Review(Model):
    """The opinion of a reviewer on a decision; only a person or a policy decides.

    `failed`: there is no opinion, for the reason given; it counts as `ask`.
    """

    by: str
    verdict: Literal["allow", "ask", "deny", "failed"]
    reason: str

    def __str__(self) -> str:
        phrases = {"allow": "has no objection", "ask": "asks for a person", "deny": "objects"}
        return f"{self.by} {phrases.get(self.verdict, 'could not review it')}: {self.reason}"


class Decision(Model):
    """An action to take with its parameters, or `no-op`.

    `reviews` are opinions on it that hooks have added.
    """

    action: str = Field(min_length=1)
    params: JsonObject = Field(default_factory=dict)
    rationale: str
    confidence: Confidence
    risk: Level = "low"
    requires_approval: bool = False
    alternatives: list[Decision] | None = None
    estimated_impact: str | None = None
    reviews: list[Review] | None = None

    @property
    def is_no_op(self) -> bool:
        """True for a no-op."""
        return self.action == NO_OP


def no_op(rationale: str) -> Decision:
    """The decision to do nothing: confidence 0, risk low."""
    return Decision(action=NO_OP, rationale=rationale, confidence=0.0)


#: The most characters of a changed value, as JSON, that a trace keeps.
MAX_CHANGED = 4000


class Change(Model):
    """The fields of a decision or situation that a plugin's hook changed.

    `before` and `after` have their values, but for values that are absent or too large to keep.
    """

    plugin: str
    fields: list[str]
    before: JsonObject = Field(default_factory=dict)
    after: JsonObject = Field(default_factory=dict)

    @classmethod
    def of(cls, plugin: str, fields: Iterable[str], before: Model, after: Model) -> Self:
        """The change that *plugin* made to those *fields*."""
        names = sorted(fields)
        first, second = (_values(model.to_wire(), names) for model in (before, after))
        return cls(plugin=plugin, fields=names, before=first, after=second)


def _values(wire: Mapping[str, Any], names: Iterable[str]) -> JsonObject:
    present = {to_camel(name) if name not in wire else name for name in names} & wire.keys()
    return {
        name: wire[name] for name in sorted(present) if len(json.dumps(wire[name])) < MAX_CHANGED
    }


_FALSE = "its predicate is false in this situation"


class StrategyVerdict(Model):
    """A strategy's part in a decision, and why.

    `failed`: it applied, and raised when it was to decide. `held`: it decided on an action that is
    not repeated for now, so the next one decided.
    """

    strategy: str
    verdict: Literal["chosen", "passed over", "not applicable", "failed", "held"]
    why: str


class Refusal(Model):
    """A decision stopped by a plugin, or invalid."""

    by: str
    reason: str
    action: str


class HeldDecision(Model):
    """A strategy's decision that was not taken because its action is held on its target."""

    strategy: str
    action: str
    target: str = ""
    reason: str


class DecisionTrace(Model):
    """The trace of a decision.

    A veto or failed guard sets `vetoed`; an invalid decision sets `invalid`. `proposed` is the
    decision that was stopped in this way. `verdicts` has every strategy, in their order. `held` has
    the decisions that came before the one taken.
    """

    strategies: list[str] = Field(default_factory=list)
    applicable: list[str] = Field(default_factory=list)
    chosen: str | None = None
    changes: list[Change] = Field(default_factory=list)
    vetoed: Refusal | None = None
    invalid: Refusal | None = None
    proposed: Decision | None = None
    held: list[HeldDecision] = Field(default_factory=list)
    verdicts: list[StrategyVerdict] = Field(default_factory=list)

    def with_verdicts(self, failures: Mapping[str, str]) -> DecisionTrace:
        """Add a verdict on each strategy; *failures* has the errors of strategies by id."""
        verdicts = [self._verdict(name, failures.get(name)) for name in self.strategies]
        return self.model_copy(update={"verdicts": verdicts})

    def _verdict(self, name: str, error: str | None) -> StrategyVerdict:
        if name not in self.applicable:
            reason = f"its predicate failed: {error}" if error else _FALSE
            return StrategyVerdict(strategy=name, verdict="not applicable", why=reason)
        held = next((decision.reason for decision in self.held if decision.strategy == name), None)
        if held:
            return StrategyVerdict(strategy=name, verdict="held", why=held)
        if name != self.chosen:
            reason = f"{self.chosen or 'another'} applies and comes first"
            return StrategyVerdict(strategy=name, verdict="passed over", why=reason)
        if error:
            return StrategyVerdict(strategy=name, verdict="failed", why=error)
        first = "it is the first that applies"
        reason = f"{first} and whose action is not held" if self.held else first
        return StrategyVerdict(strategy=name, verdict="chosen", why=reason)

    @property
    def approval_required_by(self) -> str | None:
        """The plugin whose hook last required an approval."""
        names = {"requires_approval", "requiresApproval"}
        plugins = [change.plugin for change in self.changes if names & set(change.fields)]
        return plugins[-1] if plugins else None
