"""Previews: what an execution would do, by the action's dry run, without doing it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boyd.agent.procedure_plans import action_of, params_of
from boyd.models import ActionResult, Json, JsonObject
from boyd.phases.action_call import call_action, failed, unknown, without_secrets
from boyd.phases.phase_context import PhaseContext, describe
from boyd.plugin import Procedure
from boyd.plugin.parameters import plain, validate
from boyd.text.references import MissingValue


def dry_run(
    ctx: PhaseContext, action_id: str, params: Mapping[str, Any], for_model: bool = False
) -> ActionResult:
    """Report what an execution would do; *for_model* redacts secrets."""
    action = ctx.host.actions.get(action_id)
    if action is None:
        return unknown(action_id)
    if not action.has("dry_run"):
        return failed(action_id, "The action has no dry run")
    if isinstance(action, Procedure):
        return _plan(ctx, action, params, for_model)
    try:
        valid = validate(action, params)
    except Exception as error:  # noqa: BLE001 - also of the plugin's own validation
        return failed(action_id, describe(error))
    found = call_action(ctx, action, "dry_run", valid, ctx.context(action.plugin_id))
    return without_secrets(found) if for_model else found


def _plan(
    ctx: PhaseContext, procedure: Procedure, params: Mapping[str, Any], for_model: bool
) -> ActionResult:
    """The steps of a procedure, each with its dry run if it has one and its params are known."""
    try:
        values = {"params": plain(validate(procedure, params))}
    except ValueError as error:
        return failed(procedure.id, str(error))
    shown: list[Json] = []
    for step in procedure.steps:
        planned = action_of(step)
        one: JsonObject = {"step": step.id, "action": planned.action}
        try:
            one["params"] = params_of(step, values)
        except MissingValue:
            one |= {"params": planned.params, "preview": "it depends on an earlier step"}
        else:
            action = ctx.host.actions.get(planned.action)
            if action is not None and action.has("dry_run"):
                seen = dry_run(ctx, action.id, one["params"], for_model)  # type: ignore[arg-type]
                one["preview"] = seen.output if seen.success else f"failed: {seen.error}"
        shown.append(one)
    return ActionResult(action=procedure.id, success=True, duration=0.0, output={"steps": shown})
