"""The plugin: a strategy, and a hook that keeps for it what it would not see."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
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
from boyd.plugin import Context, Plugin, Strategy
from boyd.plugins import playbooks
from boyd.plugins.investigator import question
from boyd.plugins.investigator.question import normal

#: How many alternatives are kept, and characters of each text.
MOST = 5
LONGEST = 2000


class Alternative(BaseModel):
    """What could be done instead."""

    action: str = Field(description="the id of an action, or no-op")
    params: dict[str, Any] = Field(default={}, description="its parameters")
    rationale: str = Field(default="", description="what speaks for it and against it")
    confidence: float = Field(default=0.0, ge=0, le=1)


class Choice(BaseModel):
    """Your decision."""

    action: str
    params: dict[str, Any] = Field(default={}, description="as the action's schema says")
    rationale: str = Field(min_length=1, description="why, from what you have been shown")
    confidence: float = Field(
        ge=0, le=1, description="how sure you are that this is right: 0 is a guess, 1 is certain"
    )
    alternatives: list[Alternative] = Field(
        default=[], description="what else you have considered, best first"
    )


def among(actions: Sequence[ActionInfo]) -> type[Choice]:
    """The shape of a choice among *actions*, with params that fit."""
    offered = {one.id: one for one in actions}
    ids = [*offered, NO_OP]

    def known(action: str) -> str:
        if action not in ids:
            raise ValueError(f"there is no action {action!r}; choose one of {', '.join(ids)}")
        return action

    def fits(made: Choice) -> Choice:
        wrong = misfit(offered.get(made.action), made.params)
        if wrong:
            raise ValueError(f"the params of {made.action} do not fit: {wrong}")
        return made

    field = Field(
        description="the id of an action, or no-op", json_schema_extra=cast(Any, {"enum": ids})
    )
    return create_model(
        "Choice",
        __base__=Choice,
        __doc__=Choice.__doc__,
        __validators__={"fits": cast(Any, model_validator(mode="after")(fits))},
        action=(Annotated[str, AfterValidator(known), field], ...),
    )


def misfit(action: ActionInfo | None, params: dict[str, Any]) -> str | None:
    """What is wrong with the *params* of an action, as far as its schema tells; None: nothing."""
    if action is None or action.params is None:
        return None
    # A model has been asked already: the model loop is there.
    from boyd.llm import replies

    return replies.misfit(params, action.params)


def described(actions: Sequence[ActionInfo]) -> str:
    """What a model is told of the actions."""
    return json.dumps([_told(one) for one in actions], ensure_ascii=False, indent=1)


def decided(
    choice: Choice, actions: Sequence[ActionInfo], min_confidence: float, requires_approval: bool
) -> Decision:
    """The decision that a choice is."""
    offered = {one.id: one for one in actions}
    others = [_decision(one, offered, requires_approval) for one in choice.alternatives]
    kept = [one for one in others if one is not None][:MOST]
    chosen = _decision(choice, offered, requires_approval)
    if choice.action == NO_OP or chosen is None:
        return no_op(choice.rationale[:LONGEST]).patched({"alternatives": kept or None})
    if choice.confidence < min_confidence:
        sure = f"{choice.confidence:g}, and {min_confidence:g} is needed"
        why = f"The model is not sure enough of {choice.action} ({sure}): {choice.rationale}"
        return no_op(why[:LONGEST]).patched({"alternatives": [chosen, *kept]})
    return chosen.patched({"alternatives": kept or None})


def _decision(
    one: Choice | Alternative, offered: Mapping[str, ActionInfo], requires_approval: bool
) -> Decision | None:
    """What it would be to do this; None when it cannot be done."""
    action = offered.get(one.action)
    if action is None or misfit(action, one.params):
        return None
    return Decision(
        action=action.id,
        params=one.params,
        rationale=one.rationale[:LONGEST],
        confidence=one.confidence,
        risk=action.risk,
        requires_approval=requires_approval,
    )


def _told(action: ActionInfo) -> dict[str, Any]:
    about: dict[str, Any] = {
        "id": action.id,
        "name": action.name,
        "description": action.description,
        "risk": action.risk,
        "params": action.params or {"type": "object"},
    }
    if action.autonomy.mode != "auto":
        about["approval"] = "a person is asked first"
    return about


#: Characters that the situation may have, and the observations.
SITUATION = 20_000
OBSERVATIONS = 8_000
#: Seconds that what was seen is kept for the strategy.
_KEEP = 3600.0
_LAST = "last"

_INSTRUCTIONS = """\
You decide what an agent that looks after systems does next, if anything. Choose one of the actions
below, or no-op when none of them helps, when it is not clear what is wrong, or when what was done
should first be given time. Prefer what is least risky.
"""


class ModelStrategy(Plugin):
    """Lets the model choose among the agent's actions; what is not sound becomes a no-op.

    The actions it chooses go the way of all others: their autonomy, guards and budgets hold.
    """

    id = "model-strategy"
    needs_llm = True

    class Options(Plugin.Options):
        """What it may choose, and when it is asked; times in seconds.

        Attributes:
            actions: patterns of action ids.
            min_priority: of the situation, from which on it has a say.
            min_confidence: below it nothing is done.
            requires_approval: ask a person before anything that it has chosen.
            pause: for how long it is not asked again about a situation that stays the same.
            timeout: for one decision.
            instructions: what the model is told besides.
            enable_playbooks: whether it is told the playbooks that fit.
            playbooks: the folder they are in.
        """

        actions: list[str] = Field(default=["*"], min_length=1)
        min_priority: Level = "medium"
        min_confidence: Confidence = 0.7
        requires_approval: bool = False
        pause: float = Field(default=300.0, ge=0)
        # A phase that takes two minutes is given to another worker.
        timeout: float = Field(default=60.0, gt=0, le=90)
        instructions: str = Field(default="", max_length=20_000)
        enable_playbooks: bool = True
        playbooks: Path | None = None

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        strategy = Strategy(
            name="choose",
            description="Let the model choose what to do.",
            timeout=self.options.timeout,
            decide=self.choose,
            applicable_when=self.has_a_say,
        )
        self.components = (strategy,)

    def init(self, ctx: Context) -> None:
        """Tell of playbooks that cannot be read."""
        if self.options.enable_playbooks:
            playbooks.load(self.options.playbooks, ctx)

    def on_orient(
        self, situation: Situation, observations: list[Observation], ctx: Context
    ) -> None:
        """Keep for the strategy what only orienters see."""
        severities = [SEVERITIES.index(one.severity) for one in observations if one.severity]
        worst = max([LEVELS.index(situation.priority), *severities])
        if worst >= LEVELS.index(self.options.min_priority):
            seen = {
                "observations": question.listed(observations, OBSERVATIONS),
                "playbooks": playbooks.told(
                    self.options.enable_playbooks,
                    self.options.playbooks,
                    observations,
                    "decide",
                    ctx,
                ),
            }
            ctx.state.set(f"seen:{ctx.iteration}", seen, _KEEP)

    def has_a_say(self, situation: Situation, ctx: Context) -> bool:
        """Whether the situation is grave enough, and there is anything to choose."""
        grave = LEVELS.index(situation.priority) >= LEVELS.index(self.options.min_priority)
        return grave and bool(self._actions(ctx))

    def choose(self, situation: Situation, ctx: Context) -> Decision:
        """Ask the model, unless it has just been asked the same."""
        digest = _digest(situation)
        waits = self._waits(digest, ctx)
        if waits:
            return no_op(waits)
        actions = self._actions(ctx)
        try:
            made = self._ask(situation, actions, ctx)
        except StoreError:
            raise
        except BoydError as error:
            return no_op(f"The model has not decided: {error}"[:LONGEST])
        decision = decided(
            made, actions, self.options.min_confidence, self.options.requires_approval
        )
        last = {"digest": digest, "action": decision.action, "at": ctx.now().isoformat()}
        ctx.state.set(_LAST, last)
        return decision

    def _actions(self, ctx: Context) -> list[ActionInfo]:
        patterns = self.options.actions
        return [
            one
            for one in ctx.catalog.actions
            if any(fnmatchcase(one.id, pattern) for pattern in patterns)
        ]

    def _waits(self, digest: str, ctx: Context) -> str | None:
        """Why the model is not asked, if it is not."""
        last = ctx.state.get(_LAST)
        if not last or last["digest"] != digest:
            return None
        ago = (ctx.now() - datetime.fromisoformat(last["at"])).total_seconds()
        if not 0 <= ago < self.options.pause:
            return None
        did = "to do nothing" if last["action"] == NO_OP else f"for {last['action']}"
        return (
            f"The model has decided {did} {ago:.0f} s ago, and the situation is still the same; "
            f"it is asked again after {self.options.pause:g} s"
        )

    def _ask(self, situation: Situation, actions: list[ActionInfo], ctx: Context) -> Choice:
        seen = ctx.state.get(f"seen:{ctx.iteration}", {})
        parts = [
            _INSTRUCTIONS,
            question.DATA,
            f"The actions:\n{described(actions)}",
            self.options.instructions,
            seen.get("playbooks", ""),
        ]
        told = question.tagged("situation", situation.to_wire(), SITUATION)
        asked = ["What is to be done in this situation?", told, seen.get("observations", "")]
        return ctx.llm.answer(
            "\n\n".join(part for part in asked if part),
            among(actions),
            instructions="\n\n".join(part for part in parts if part),
        )


def _digest(situation: Situation) -> str:
    """Tells situations apart, whatever their numbers and times are."""
    parts: list[str] = [situation.priority]
    for one in situation.assessments:
        texts = [*one.findings, one.contributing_factor or "", one.impact_assessment or ""]
        parts += [one.source, *map(normal, texts)]
    parts += [f"{one.type} {one.severity} {normal(one.description)}" for one in situation.anomalies]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
