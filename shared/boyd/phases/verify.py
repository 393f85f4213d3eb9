"""One check of the effect of an action."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from pydantic import ValidationError

from boyd.errors import Overrun
from boyd.models import EffectName, EffectVerdict, ExecutionEntry
from boyd.phases import time_limit
from boyd.phases.action_call import ConfinedCall, confined, unenforced
from boyd.phases.phase_context import PhaseContext, describe
from boyd.plugin import Action, Context
from boyd.plugin.parameters import validate
from boyd.sandbox.confined_call import ConfinedAnswer
from boyd.text.redaction import clean

#: Characters of the evidence for a verdict.
MAX_EVIDENCE = 500


@dataclass(frozen=True)
class EffectCheck:
    """The result of a check: `verdict` is final if `ends`, and otherwise what would be said now."""

    verdict: EffectName
    evidence: str = ""
    ends: bool = False


def verify(ctx: PhaseContext, action: Action, entry: ExecutionEntry) -> EffectCheck:
    """Check the effect of an execution once; an error means that it cannot tell so far."""
    context = replace(ctx.context(action.plugin_id), execution_id=entry.id)

    sandbox = ctx.agent.sandbox(action.id)
    call = ConfinedCall(
        action.id, "verify", entry.params, execution_id=entry.id, result=entry.result
    )
    try:
        if sandbox is not None:
            if why := unenforced(ctx, action):
                return EffectCheck("cannot tell", why[:MAX_EVIDENCE])
            return _answered(confined(ctx, action, sandbox, call))
        check: EffectCheck = time_limit.call(lambda: look(action, call, context), action.timeout)
        return check
    except (Exception, Overrun) as error:  # noqa: BLE001 - the check is repeated
        return EffectCheck("cannot tell", describe(error)[:MAX_EVIDENCE])


def look(action: Action, call: ConfinedCall, context: Context) -> EffectCheck:
    """Call the action's `verify`, and read what it returns."""
    params = validate(action, call.params)
    return _read(action.call("verify", params=params, result=call.result, ctx=context))


def look_confined(action: Action, call: ConfinedCall, context: Context) -> str:
    """The check as JSON, in a sandbox."""
    return json.dumps(asdict(look(action, call, context)))


def _answered(found: ConfinedAnswer) -> EffectCheck:
    if found.answer is None:
        raise RuntimeError(found.error)
    said = json.loads(found.answer)
    checked = EffectVerdict(verdict=said["verdict"], evidence=said["evidence"], final=said["ends"])
    return EffectCheck(checked.verdict, clean(checked.evidence)[:MAX_EVIDENCE], checked.final)


def _read(found: Any) -> EffectCheck:
    if found is None:
        return EffectCheck("cannot tell")
    if isinstance(found, bool):
        return EffectCheck("effective", ends=True) if found else EffectCheck("no effect")
    try:
        said = EffectVerdict.model_validate({"verdict": found} if isinstance(found, str) else found)
    except ValidationError:
        names = ", ".join(repr(name) for name in get_args(EffectName))
        raise TypeError(
            f"verify returned {found!r:.80}; expected a bool, None, an EffectVerdict or one of "
            f"{names}"
        ) from None
    return EffectCheck(said.verdict, clean(said.evidence)[:MAX_EVIDENCE], said.final)
