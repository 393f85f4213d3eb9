"""The plugin `model-strategy`: the model chooses among the actions of the agent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, Field, create_model, model_validator

from boyd.errors import BoydError, StoreError
from boyd.models import (
    LEVELS,
    NO_OP,
    SEVERITIES,
    ActionInfo,
    Confidence,
    Decision,
    Level,
    Observation,
    Situation,
    no_op,
)
from boyd.plugin import Context, Strategy
from boyd.plugins.investigator import question
from boyd.plugins.investigator.question import normalize
from boyd.plugins.playbook_reader import PlaybookReader

#: The most alternatives kept, and characters of a text.
MOST, LONGEST = 5, 2000


class Alternative(BaseModel):
    """Another possible action."""

    action: str = Field(description="the id of an action, or no-op")
    params: dict[str, Any] = Field(default={}, description="its parameters")
    rationale: str = Field(default="", description="arguments for and against it")
    confidence: float = Field(default=0.0, ge=0, le=1)


class Choice(BaseModel):
    """Your decision."""

    action: str
    params: dict[str, Any] = Field(
        default={}, description="its parameters, as its schema defines them"
    )
    rationale: str = Field(min_length=1, description="the reason, based on the data below")
    confidence: float = Field(
        ge=0, le=1, description="how sure you are that this is right: 0 is a guess, 1 is certain"
    )
    alternatives: list[Alternative] = Field(
        default=[], description="other options you have considered, best first"
    )


def choice_model(actions: Sequence[ActionInfo]) -> type[Choice]:
    """The model of a choice among *actions*, with valid params."""
    offered = {action_info.id: action_info for action_info in actions}
    ids = [*offered, NO_OP]

    def check_action(action: str) -> str:
        if action not in ids:
            raise ValueError(f"no action {action!r}; choose one of {', '.join(ids)}")
        return action

    def fits(choice: Choice) -> Choice:
        wrong = params_error(offered.get(choice.action), choice.params)
        if wrong:
            raise ValueError(f"the params of {choice.action} are not valid: {wrong}")
        return choice

    field = Field(
        description="the id of an action, or no-op", json_schema_extra=cast(Any, {"enum": ids})
    )
    return create_model(
        "Choice",
        __base__=Choice,
        __doc__=Choice.__doc__,
        __validators__={"fits": cast(Any, model_validator(mode="after")(fits))},
        action=(Annotated[str, AfterValidator(check_action), field], ...),
    )


def params_error(action: ActionInfo | None, params: dict[str, Any]) -> str | None:
    """The validation error of the *params* of an action, if any."""
    if action is None or action.params is None:
        return None
    # Imported late: only agents with a model need it.
    from boyd.llm import replies

    return replies.misfit(params, action.params)


def describe_actions(actions: Sequence[ActionInfo]) -> str:
    """The actions for a prompt."""
    return json.dumps([_describe(action) for action in actions], ensure_ascii=False, indent=1)


def to_decision(
    choice: Choice, actions: Sequence[ActionInfo], min_confidence: float, requires_approval: bool
) -> Decision:
    """The decision for a choice."""
    offered = {item.id: item for item in actions}
    others = [_decision(item, offered, requires_approval) for item in choice.alternatives]
    alternatives = [item for item in others if item is not None][:MOST]
    chosen = _decision(choice, offered, requires_approval)
    if choice.action == NO_OP or chosen is None:
        return no_op(choice.rationale[:LONGEST]).patched({"alternatives": alternatives or None})
    if choice.confidence < min_confidence:
        low = f"{choice.confidence:g}, and {min_confidence:g} is required"
        rationale = f"The model is not sure enough of {choice.action} ({low}): {choice.rationale}"
        return no_op(rationale[:LONGEST]).patched({"alternatives": [chosen, *alternatives]})
    return chosen.patched({"alternatives": alternatives or None})


def _decision(
    choice: Choice | Alternative, offered: Mapping[str, ActionInfo], requires_approval: bool
) -> Decision | None:
    """The decision for a choice or alternative; None if the action is not possible."""
    action = offered.get(choice.action)
    if action is None or params_error(action, choice.params):
        return None
    return Decision(
        action=action.id,
        params=choice.params,
        rationale=choice.rationale[:LONGEST],
        confidence=choice.confidence,
        risk=action.risk,
        requires_approval=requires_approval,
    )


def _describe(action: ActionInfo) -> dict[str, Any]:
    about: dict[str, Any] = {
        "id": action.id,
        "name": action.name,
        "description": action.description,
        "risk": action.risk,
        "params": action.params or {"type": "object"},
    }
    if action.autonomy.mode != "auto":
        about["approval"] = "a person must approve it first"
    return about


#: The most characters of the situation and of the observations in a prompt.
SITUATION, OBSERVATIONS = 20_000, 8_000
#: Seconds the observations are kept for the strategy.
_KEEP = 3600.0

_INSTRUCTIONS = """\
You decide the next action of an agent that operates systems. Choose one of the actions below, or
no-op if none of them helps, if the problem is unclear, or if an earlier action needs time to take
effect. Prefer the action with the least risk.
"""


class ModelStrategy(PlaybookReader):
    """Lets the model choose among the agent's actions; an invalid choice becomes a no-op.

    Autonomy, guards and budgets apply to its choices as to any other decision.
    """

    id = "model-strategy"

    class Options(PlaybookReader.Options):
        """The plugin's options; times in seconds.

        Attributes:
            actions: patterns of action ids.
            min_priority: least priority of a situation to ask the model about.
            min_confidence: least confidence to act on.
            requires_approval: require approval for every choice.
            pause: time before the model is asked again about an unchanged situation.
            timeout: of one decision.
        """

        actions: list[str] = Field(default=["*"], min_length=1)
        min_priority: Level = "medium"
        min_confidence: Confidence = 0.7
        requires_approval: bool = False
        pause: float = Field(default=300.0, ge=0)
        # A phase that takes two minutes is handed to another worker.
        timeout: float = Field(default=60.0, gt=0, le=90)

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        strategy = Strategy(
            name="choose",
            description="Let the model choose an action.",
            timeout=self.options.timeout,
            decide=self.choose,
            applicable_when=self.is_applicable,
        )
        self.components = (strategy,)

    def on_orient(
        self, situation: Situation, observations: list[Observation], ctx: Context
    ) -> None:
        """Store the observations for the strategy, which does not receive them."""
        severities = [
            SEVERITIES.index(observation.severity)
            for observation in observations
            if observation.severity
        ]
        worst = max([LEVELS.index(situation.priority), *severities])
        if worst >= LEVELS.index(self.options.min_priority):
            context = {
                "observations": question.list_observations(observations, OBSERVATIONS),
                "playbooks": self.playbook_section(observations, "decide", ctx),
            }
            ctx.state.set(f"seen:{ctx.iteration}", context, _KEEP)

    def is_applicable(self, situation: Situation, ctx: Context) -> bool:
        """True if the situation has enough priority, and there are actions to choose from."""
        grave = LEVELS.index(situation.priority) >= LEVELS.index(self.options.min_priority)
        return grave and bool(self._actions(ctx))

    def choose(self, situation: Situation, ctx: Context) -> Decision:
        """Ask the model, unless it was just asked about the same situation."""
        digest = _digest(situation)
        waits = self._reason_to_wait(digest, ctx)
        if waits:
            return no_op(waits)
        actions = self._actions(ctx)
        try:
            choice = self._ask(situation, actions, ctx)
        except StoreError:
            raise
        except BoydError as error:
            return no_op(f"The model failed to decide: {error}"[:LONGEST])
        options = self.options
        decision = to_decision(choice, actions, options.min_confidence, options.requires_approval)
        last = {"digest": digest, "action": decision.action, "at": ctx.now().isoformat()}
        ctx.state.set("last", last)
        return decision

    def _actions(self, ctx: Context) -> list[ActionInfo]:
        def is_offered(action: ActionInfo) -> bool:
            return any(fnmatchcase(action.id, pattern) for pattern in self.options.actions)

        return list(filter(is_offered, ctx.catalog.actions))

    def _reason_to_wait(self, digest: str, ctx: Context) -> str | None:
        last = ctx.state.get("last")
        if not last or last["digest"] != digest:
            return None
        ago = (ctx.now() - datetime.fromisoformat(last["at"])).total_seconds()
        if not 0 <= ago < self.options.pause:
            return None
        did = "to do nothing" if last["action"] == NO_OP else f"for {last['action']}"
        return (
            f"The model decided {did} {ago:.0f} s ago, and the situation has not changed; "
            f"it is asked again after {self.options.pause:g} s"
        )

    def _ask(self, situation: Situation, actions: list[ActionInfo], ctx: Context) -> Choice:
        context = ctx.state.get(f"seen:{ctx.iteration}", {})
        parts = [
            _INSTRUCTIONS,
            question.DATA,
            f"The actions:\n{describe_actions(actions)}",
            self.options.instructions,
            context.get("playbooks", ""),
        ]
        text = question.tag_json("situation", situation.to_wire(), SITUATION)
        question_parts = [
            "What should be done in this situation?",
            text,
            context.get("observations", ""),
        ]
        return ctx.llm.answer(
            "\n\n".join(part for part in question_parts if part),
            choice_model(actions),
            instructions="\n\n".join(part for part in parts if part),
        )


def _digest(situation: Situation) -> str:
    """A hash of a situation without numbers and times."""
    parts: list[str] = [situation.priority]
    for assessment in situation.assessments:
        texts = [
            *assessment.findings,
            assessment.contributing_factor or "",
            assessment.impact_assessment or "",
        ]
        parts += [assessment.source, *map(normalize, texts)]
    for odd in situation.anomalies:
        parts.append(f"{odd.type} {odd.severity} {normalize(odd.description)}")
    return question.short_hash("\n".join(parts))
