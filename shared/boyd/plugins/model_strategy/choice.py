"""What a model may answer that is asked what to do, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, Field, create_model, model_validator

from boyd.models import NO_OP, ActionInfo, Decision, no_op

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
    from boyd.llm import shape

    return shape.misfit(params, action.params)


def told(actions: Sequence[ActionInfo]) -> str:
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
