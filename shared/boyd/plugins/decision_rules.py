"""The plugin `rules`: it decides on actions by rules about observations, without any code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from hashlib import sha256
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from boyd.agent.conditions import OBJECT, Condition, ConditionError, Language
from boyd.errors import ConfigError
from boyd.models import (
    LEVELS,
    SEVERITIES,
    ActionInfo,
    Anomaly,
    Catalog,
    Confidence,
    Decision,
    JsonObject,
    Level,
    Observation,
    Severity,
    Situation,
    SituationAssessment,
    StepAction,
)
from boyd.plugin import Context, Plugin, Strategy, orienter
from boyd.settings.validation import nearest
from boyd.text.formatting import counted
from boyd.text.references import (
    MissingValue,
    Reference,
    fill,
    parse_reference,
    reference_texts,
)

#: The most matches of one rule that an assessment keeps.
MAX_MATCHES = 100
#: Seconds for which a rule knows when it decided on a thing.
MEMORY = 86_400.0
#: What a rule may use of an observation, with the types in conditions.
_NAMES = {"source": "string", "severity": "string", "data": OBJECT}


class DecisionRule(BaseModel):
    """A rule: on an observation like this, decide on that action.

    Attributes:
        name: names the strategy: `rules:<name>`.
        source: a pattern of the observation's source, such as `kubernetes/*`.
        min_severity: the lowest severity of the observation.
        when: a condition in CEL on `source`, `severity` and `data` of the observation.
        value: a reference to a number of the observation, such as `${data.load}`.
        above: the rule matches while the value is above this.
        below: the rule matches while the value is below this; with both, outside of them.
        action: the action's id.
        params: the action's; `${data.NAME}` and `${source}` stand for values of the observation.
        confidence: of the decision.
        risk: of the decision; absent: that of the action.
        requires_approval: whether a person decides, whatever else the agent allows.
        rationale: the reason that people read, in front of what was observed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,59}$")
    source: str = Field(min_length=1)
    min_severity: Severity = "warning"
    when: str | None = None
    value: str | None = None
    above: float | None = Field(default=None, allow_inf_nan=False)
    below: float | None = Field(default=None, allow_inf_nan=False)
    action: str = Field(min_length=1)
    params: JsonObject = Field(default_factory=dict)
    confidence: Confidence = 0.8
    risk: Level | None = None
    requires_approval: bool = False
    rationale: str = Field(default="", max_length=1000)

    @field_validator("params")
    @classmethod
    def _references(cls, params: JsonObject) -> JsonObject:
        for text in reference_texts(params):
            _reference(text)
        return params

    @field_validator("value")
    @classmethod
    def _check_value(cls, value: str | None) -> str | None:
        if value is not None:
            _reference(value)
        return value

    @model_validator(mode="after")
    def _check_limits(self) -> DecisionRule:
        has_limit = self.above is not None or self.below is not None
        if has_limit and self.value is None:
            raise ValueError("above and below need a value, such as ${data.load}")
        if self.value is not None and not has_limit:
            raise ValueError("a value needs a limit: above, below or both")
        return self

    def applies_to(self, observation: Observation) -> bool:
        """Report whether it is about such an observation, apart from its condition."""
        severity = SEVERITIES.index(observation.severity or "info")
        return severity >= SEVERITIES.index(self.min_severity) and fnmatchcase(
            observation.source, self.source
        )

    def is_beyond_limits(self, values: Mapping[str, Any]) -> bool:
        """Report whether the rule's value is beyond its limits, or it has none.

        Raises:
            MissingValue: the observation has no such value, or it is no number.
        """
        if self.value is None:
            return True
        number = _reference(self.value).look_up(values)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise MissingValue(f"{self.value}: {number!r} is no number")
        is_above = self.above is not None and number > self.above
        return is_above or (self.below is not None and number < self.below)


def _reference(text: str) -> Reference:
    """Parse a reference to a part of an observation."""
    reference = parse_reference(text)
    if reference is None or reference.name not in _NAMES:
        raise ValueError(
            f"{text!r}: a reference is the whole text: ${{data.NAME}}, ${{source}} or ${{severity}}"
        )
    return reference


class RuleMatch(BaseModel):
    """An observation that a rule decides on: its params, and the thing in words."""

    rule: str
    resource: str
    source: str
    severity: Severity
    params: JsonObject

    @property
    def key(self) -> str:
        """The key of the time at which the rule last decided on the thing, of any length."""
        digest = sha256(self.resource.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"decided:{self.rule}:{digest}"


class DecisionRules(Plugin):
    """Decides by rules: the first rule with a matching observation decides.

    Each rule is a strategy. If several observations match, the thing that the rule has not decided
    on for longest comes first.
    """

    id = "rules"

    class Options(Plugin.Options):
        """The plugin's options.

        Attributes:
            rules: in their order; the first one that matches decides.
        """

        rules: list[DecisionRule] = Field(min_length=1)

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._conditions = {rule.name: _condition(rule) for rule in self.options.rules}
        self.components = tuple(self._strategy(rule) for rule in self.options.rules)

    def _strategy(self, rule: DecisionRule) -> Strategy:
        return Strategy(
            name=rule.name,
            description=rule.rationale or f"Decide on {rule.action}.",
            templates=(StepAction(action=rule.action, params=rule.params),),
            applicable_when=lambda situation: bool(self._matches(rule, situation)),
            decide=lambda situation, ctx: self._decide(rule, situation, ctx),
        )

    def init(self, ctx: Context) -> None:
        """Refuse rules that do not fit the agent's actions."""
        for misfit in self.misfits(ctx.catalog):
            raise ConfigError(f"plugin {self.id}: {misfit}")

    def misfits(self, catalog: Catalog) -> Iterator[str]:
        """The rules whose action is unknown, or takes other parameters."""
        actions = {action.id: action for action in catalog.actions}
        for rule in self.options.rules:
            action = actions.get(rule.action)
            if action is None:
                near = nearest(rule.action, actions)
                yield f"rule {rule.name!r}: there is no action {rule.action!r}{near}"
            else:
                yield from _misfits(rule, action)

    @orienter()
    def matches(self, observations: list[Observation]) -> SituationAssessment:
        """Find the observations that rules are about, and none sent in the name of a plugin."""
        observations = [item for item in observations if not item.is_forged]
        findings: list[str] = []
        matches: list[RuleMatch] = []
        for rule in self.options.rules:
            matched = list(self._matching(rule, observations, findings))
            if matched:
                findings.append(f"rule {rule.name}: {counted(len(matched), 'match', 'matches')}")
            matches += matched[:MAX_MATCHES]
        return SituationAssessment(
            source=f"{self.id}:matches",
            findings=findings or ["No rule matches"],
            anomalies=[_anomaly(match) for match in matches] or None,
            data={"matches": [match.model_dump(mode="json") for match in matches]},
        )

    def _matching(
        self, rule: DecisionRule, observations: list[Observation], findings: list[str]
    ) -> Iterator[RuleMatch]:
        """The matches of a rule; *findings* receives the first error."""
        condition, error = self._conditions[rule.name], ""
        for observation in filter(rule.applies_to, observations):
            try:
                values = _values(observation)
                met = condition is None or condition.is_true(values)
                if met and rule.is_beyond_limits(values):
                    yield _match(rule, observation)
            except (ConditionError, MissingValue) as failed:
                error = error or f"rule {rule.name} cannot judge {observation.source}: {failed}"
        if error:
            findings.append(error)

    def _matches(self, rule: DecisionRule, situation: Situation) -> list[RuleMatch]:
        records: Any = situation.evidence(f"{self.id}:matches").get("matches", [])
        return [
            RuleMatch.model_validate(record) for record in records if record["rule"] == rule.name
        ]

    def _decide(self, rule: DecisionRule, situation: Situation, ctx: Context) -> Decision:
        match = _due_match(self._matches(rule, situation), ctx)
        ctx.state.set(match.key, ctx.now().timestamp(), ttl=MEMORY)
        risks = {action.id: action.risk for action in ctx.catalog.actions}
        observed = f"{match.source} reports {match.severity} for {match.resource}"
        return Decision(
            action=rule.action,
            params=match.params,
            rationale=f"{rule.rationale}: {observed}" if rule.rationale else observed,
            confidence=rule.confidence,
            risk=rule.risk or risks.get(rule.action, "low"),
            requires_approval=rule.requires_approval,
        )


def _due_match(matches: list[RuleMatch], ctx: Context) -> RuleMatch:
    """The match whose thing was decided on longest ago; a single one needs no state."""
    if len(matches) == 1:
        return matches[0]
    times = ctx.state.get_many([match.key for match in matches])
    return min(matches, key=lambda match: times.get(match.key, 0.0))


def _condition(rule: DecisionRule) -> Condition | None:
    if rule.when is None:
        return None
    try:
        return _language().compile(rule.when)
    except ConditionError as error:
        raise ConfigError(f"plugin rules: rule {rule.name!r}: when: {error}") from None


@cache
def _language() -> Language:
    return Language(_NAMES)


def _values(observation: Observation) -> dict[str, Any]:
    return {
        "source": observation.source,
        "severity": observation.severity or "info",
        "data": observation.data,
    }


def _match(rule: DecisionRule, observation: Observation) -> RuleMatch:
    values = _values(observation)
    params: JsonObject = fill(rule.params, values)
    things = [str(fill(text, values)) for text in reference_texts(rule.params)]
    return RuleMatch(
        rule=rule.name,
        resource="/".join(things) or observation.source,
        source=observation.source,
        severity=values["severity"],
        params=params,
    )


def _anomaly(match: RuleMatch) -> Anomaly:
    level = LEVELS[SEVERITIES.index(match.severity)]
    description = f"{match.source} reports {match.severity}"
    return Anomaly(
        type=match.rule,
        description=description,
        severity=level,
        affected_resources=[match.resource],
    )


def _misfits(rule: DecisionRule, action: ActionInfo) -> Iterator[str]:
    schema: Mapping[str, Any] = action.params or {}
    if not schema or schema.get("additionalProperties"):
        return
    names = schema.get("properties", {})
    for name in rule.params:
        if name not in names:
            near = nearest(name, names)
            yield f"rule {rule.name!r}: {action.id} takes no parameter {name!r}{near}"
    for name in schema.get("required", []):
        if name not in rule.params:
            yield f"rule {rule.name!r}: {action.id} needs the parameter {name!r}"
