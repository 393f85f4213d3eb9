"""Checks the effect of an action: once before it, and again and again after it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from pydantic import ValidationError

from boyd.errors import Overrun
from boyd.models import EffectName, EffectVerdict, ExecutionEntry, JsonObject
from boyd.phases import time_limit
from boyd.phases.action_call import ConfinedCall, call_confined, sandbox_obstacle
from boyd.phases.phase_context import PhaseContext, describe
from boyd.plugin import Action, Context
from boyd.plugin.plugin_boundary import unchecked, validate
from boyd.sandbox.confined_call import ConfinedAnswer
from boyd.settings.secret_references import fill_secrets
from boyd.text.redaction import clean

#: Characters of the evidence for a verdict.
MAX_EVIDENCE = 500
#: Seconds that a check before an action may take.
BEFORE_LIMIT = 10.0


@dataclass(frozen=True)
class EffectCheck:
    """The result of a check; `verdict` is final if `ends`, and otherwise provisional."""

    verdict: EffectName
    evidence: str = ""
    ends: bool = False
    raised: bool = False


def verify(ctx: PhaseContext, action: Action, entry: ExecutionEntry) -> EffectCheck:
    """Check the effect of an execution once; an error means that it cannot tell so far."""
    call = ConfinedCall(
        action.id, "verify", entry.params, execution_id=entry.id, result=entry.result
    )
    return _check(ctx, action, call, action.timeout)


def check_before(
    ctx: PhaseContext, action: Action, params: JsonObject, execution_id: str
) -> EffectCheck:
    """Check before an execution whether its target is well already; there is no result yet."""
    call = ConfinedCall(action.id, "verify", params, execution_id=execution_id)
    return _check(ctx, action, call, min(action.timeout, BEFORE_LIMIT))


def _check(ctx: PhaseContext, action: Action, call: ConfinedCall, limit: float) -> EffectCheck:
    context = replace(ctx.context(action.plugin_id), execution_id=call.execution_id)
    sandbox = ctx.agent.sandbox(action.id)
    try:
        call = replace(call, params=fill_secrets(call.params))
        if sandbox is not None:
            if reason := sandbox_obstacle(ctx, action):
                return EffectCheck("cannot tell", reason[:MAX_EVIDENCE])
            return _from_sandbox(call_confined(ctx, action, sandbox, call, limit))
        check: EffectCheck = time_limit.call(lambda: check_effect(action, call, context), limit)
        return check
    except (Exception, Overrun) as error:  # noqa: BLE001 - the check is repeated
        return EffectCheck("cannot tell", describe(error)[:MAX_EVIDENCE], raised=True)


def check_effect(action: Action, call: ConfinedCall, context: Context) -> EffectCheck:
    """Call the action's `verify`, and read what it returns."""
    params = validate(action, call.params)
    return _read(action.call("verify", params=params, result=call.result, ctx=context))


def check_in_sandbox(action: Action, call: ConfinedCall, context: Context) -> str:
    """The check as JSON, in a sandbox."""
    return json.dumps(asdict(check_effect(action, call, context)))


def _from_sandbox(answer: ConfinedAnswer) -> EffectCheck:
    if answer.answer is None:
        raise RuntimeError(answer.error)
    fields = json.loads(answer.answer)
    checked = EffectVerdict(
        verdict=fields["verdict"], evidence=fields["evidence"], final=fields["ends"]
    )
    return EffectCheck(checked.verdict, clean(checked.evidence)[:MAX_EVIDENCE], checked.final)


def _read(answer: Any) -> EffectCheck:
    if answer is None:
        return EffectCheck("cannot tell")
    if isinstance(answer, bool):
        return EffectCheck("effective", ends=True) if answer else EffectCheck("no effect")
    try:
        # Validate again: a verdict may have been built without validation.
        verdict = EffectVerdict.model_validate(
            {"verdict": answer} if isinstance(answer, str) else unchecked(answer)
        )
    except ValidationError:
        names = ", ".join(repr(name) for name in get_args(EffectName))
        raise TypeError(
            f"verify returned {answer!r:.80}; expected a bool, None, an EffectVerdict or one of "
            f"{names}"
        ) from None
    return EffectCheck(verdict.verdict, clean(verdict.evidence)[:MAX_EVIDENCE], verdict.final)
