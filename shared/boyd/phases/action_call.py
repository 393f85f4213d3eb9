"""Calls of an action's functions, in the worker or in a sandbox, and their results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

from boyd.agent.procedure_plans import action_of, first_item, name_targets, outline, params_of
from boyd.errors import Overrun
from boyd.models import (
    APPROVAL_REQUIRED,
    ActionResult,
    Json,
    JsonObject,
    LimitViolation,
    Prevention,
    Sandbox,
    explain,
)
from boyd.phases import time_limit
from boyd.phases.phase_context import PhaseContext, describe
from boyd.plugin import Action, Context, Procedure
from boyd.plugin.plugin_boundary import contain, params_to_json, validate
from boyd.sandbox.confined_call import CannotConfine, ConfinedAnswer
from boyd.settings.secret_references import SCHEME, fill_secrets, read_secret
from boyd.text import redaction
from boyd.text.redaction import clean, redactor
from boyd.text.references import MissingValue

#: The most characters of a result, as JSON, that are kept.
MAX_RESULT = 1_000_000
#: Seconds after which a sandbox that does not end is given up.
_GRACE = 10.0


@dataclass(frozen=True)
class ConfinedCall:
    """A function of an action to call in a sandbox; `result` is that of the execution before."""

    action: str
    function: str
    params: JsonObject
    iteration: int | None = None
    execution_id: str | None = None
    result: ActionResult | None = None
    #: The values of the references in the options of its plugin.
    secrets: Mapping[str, str] = field(default_factory=dict)


class Confiner(Protocol):
    """Runs functions of an agent's actions in sandboxes."""

    def find_limit_problem(self, sandbox: Sandbox) -> str | None:
        """Describe a limit that this host cannot enforce, if there is one."""

    def call(self, sandbox: Sandbox, call: ConfinedCall, timeout: float) -> ConfinedAnswer:
        """Call the function, at most *timeout* seconds.

        Raises:
            CannotConfine: the sandbox cannot be made; nothing was started.
            Overrun: it took longer, and was killed.
        """


def failure(
    action_id: str,
    error: str,
    duration: float = 0.0,
    lost: bool = False,
    prevented: Prevention | None = None,
    violation: LimitViolation | None = None,
) -> ActionResult:
    """A failed result with its reason."""
    return ActionResult(
        action=action_id,
        success=False,
        error=clean(error),
        duration=duration,
        unknown=lost or None,
        prevented=prevented,
        violation=violation,
    )


def no_such_action(action_id: str) -> ActionResult:
    """The result for an action that the agent lacks."""
    return failure(action_id, describe_unknown(action_id))


def describe_unknown(action_id: str) -> str:
    """Word the error for an action that the agent does not have."""
    return f"Unknown action {action_id!r}"


def sandbox_obstacle(ctx: PhaseContext, action: Action) -> str | None:
    """Return why the action's sandbox cannot be enforced here, if so; it must not run then."""
    sandbox = ctx.agent.sandbox(action.id)
    if sandbox is None:
        return None
    if ctx.confiner is None:
        return "Its sandbox cannot be enforced: this process makes no sandboxes"
    missing = ctx.confiner.find_limit_problem(sandbox)
    return f"Its sandbox cannot be enforced on this host: {missing}" if missing else None


def call_action(
    ctx: PhaseContext,
    action: Action,
    function: str,
    params: Any,
    here: Context,
    undone: ActionResult | None = None,
) -> ActionResult:
    """Call a function of an action within its limits, and return its outcome as a result."""
    sandbox = ctx.agent.sandbox(action.id)
    if sandbox is None:
        values = {"params": params, "ctx": here, "result": undone}
        return _call_in_process(action, function, lambda: action.call(function, **values))
    reason = sandbox_obstacle(ctx, action)
    if reason:
        return failure(action.id, reason, prevented="unsandboxed")
    call = ConfinedCall(
        action.id, function, params_to_json(params), here.iteration, here.execution_id, undone
    )
    return _call_in_sandbox(ctx, action, sandbox, call)


def call_confined(
    ctx: PhaseContext, action: Action, sandbox: Sandbox, call: ConfinedCall, timeout: float
) -> ConfinedAnswer:
    """Call a function in a sandbox, at most for *timeout* seconds and those of the sandbox.

    Raises:
        CannotConfine: the sandbox cannot be made; nothing was started.
        Overrun: it took longer, and was killed.
    """
    if ctx.confiner is None:
        raise CannotConfine("this process makes no sandboxes")
    confiner, limit = ctx.confiner, min(timeout, sandbox.time or timeout)
    call = replace(call, secrets=_option_secrets(ctx, action))
    # The sandbox ends by itself; the alarm is for the case that it does not.
    answer: ConfinedAnswer = time_limit.call(
        lambda: confiner.call(sandbox, call, limit), limit + _GRACE
    )
    return answer


def with_secrets(ctx: PhaseContext, action: Action, params: Any, stored: JsonObject) -> Any:
    """The *params* with the secrets that they name, for the call alone; *stored* keeps the names.

    Raises:
        SecretUnavailable: one of them, or of the options of a plugin in a sandbox, cannot be read.
        ValueError: the action does not accept them.
    """
    if isinstance(action, Procedure):
        return params  # its steps use them
    if ctx.agent.sandbox(action.id):
        _option_secrets(ctx, action)
    return validate(action, fill_secrets(stored)) if SCHEME in str(stored) else params


def _option_secrets(ctx: PhaseContext, action: Action) -> dict[str, str]:
    """The values of the references in the options of the action's plugin."""
    return {text: read_secret(text) for text in ctx.agent.secrets.options(action.plugin_id)}


def perform(action: Action, call: ConfinedCall, here: Context) -> str:
    """Call the function, in the sandbox; its result as JSON."""
    params = validate(action, call.params)
    answer = action.call(call.function, params=params, ctx=here, result=call.result)
    return _result(action, call.function, answer, 0.0).to_json()


def _call_in_sandbox(
    ctx: PhaseContext, action: Action, sandbox: Sandbox, call: ConfinedCall
) -> ActionResult:
    began = time.perf_counter()
    try:
        answer = call_confined(ctx, action, sandbox, call, action.timeout)
    except Overrun as error:
        reason = f"{error} and was killed; it may have taken effect"
        late = LimitViolation(limit="time", detail=str(error))
        return failure(action.id, reason, _ms_since(began), lost=True, violation=late)
    except Exception as error:  # noqa: BLE001 - a failed result, never a crash
        return failure(action.id, describe(error), _ms_since(began))
    reported = answer.violation
    violation = reported and reported.patched({"detail": clean(reported.detail)})
    if answer.answer is None:
        reason = f"{answer.error}; it may have taken effect" if answer.lost else answer.error
        return failure(action.id, reason, _ms_since(began), answer.lost, violation=violation)
    try:
        result = ActionResult.from_json(answer.answer)
    except ValidationError:
        return failure(action.id, "it ran, but its answer is not a result", _ms_since(began))
    # Checked again: what comes out of a sandbox is not trusted.
    checked = _result(action, call.function, result, _ms_since(began))
    return checked.patched({"violation": violation})


def _call_in_process(action: Action, name: str, function: Callable[[], Any]) -> ActionResult:
    """Run *function* within the action's time limit and return its outcome as a result."""
    began = time.perf_counter()
    try:
        result: ActionResult = time_limit.call(
            lambda: _result(action, name, function(), _ms_since(began)), action.timeout
        )
        return result
    except Overrun as error:
        reason = f"{error}; it may have taken effect"
        return failure(action.id, reason, _ms_since(began), lost=True)
    except Exception as error:  # noqa: BLE001 - a failed result, never a crash
        return failure(action.id, describe(error), _ms_since(began))


def _ms_since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 3)


def _result(action: Action, function: str, answer: Any, duration: float) -> ActionResult:
    try:
        if isinstance(answer, ActionResult):
            # Only Boyd itself may report that an action waits for approval.
            ours = answer.error == APPROVAL_REQUIRED
            message = answer.error and clean(answer.error)
            error = f"The action says: {message}" if ours else message
            name = action.title if answer.action == action.title else action.id
            ran = {"action": name, "duration": duration, "error": error}
            none = dict.fromkeys(("prevented", "violation", "waits_for"))
            result = answer.patched({**ran, **none})
        else:
            output = answer.model_dump(mode="json") if isinstance(answer, BaseModel) else answer
            result = ActionResult(action=action.id, success=True, output=output, duration=duration)
        text = result.to_json()
        size = len(text)
        if redaction.referenced and (masked := redaction.mask_json(text)) is not text:
            result = ActionResult.from_json(masked)
    except ValueError as error:
        reason = explain(error) if isinstance(error, ValidationError) else describe(error)
        return failure(action.id, f"it ran, but its output is not JSON: {reason}", duration)
    if function == "execute" and result.success and (misfit := _misfit(action, result.output)):
        reason = f"it ran, but its output does not fit what it declares: {misfit}"
        return failure(action.id, reason, duration)
    if size <= MAX_RESULT:
        return result
    left_out = f"omitted: {size} characters exceed the limit of {MAX_RESULT}"
    return result.patched({"output": left_out, "side_effects": None, "metrics": None})


def _misfit(action: Action, output: Any) -> str | None:
    """Return why an output does not fit the action's model of it, if it does not."""
    if action.output is None:
        return None
    model = action.output
    try:
        contain(lambda: model.model_validate_json(json.dumps(output)))
    except ValidationError as error:
        return explain(error)
    except Exception as error:  # noqa: BLE001 - of the checks that the plugin has written
        return describe(error)
    return None


def without_secrets(result: ActionResult) -> ActionResult:
    """The result as a model may see it."""
    return ActionResult.from_json(json.dumps(redactor().redact_json(result.to_wire())))


def dry_run(
    ctx: PhaseContext, action_id: str, params: Mapping[str, Any], for_model: bool = False
) -> ActionResult:
    """Report what an execution would do; *for_model* redacts secrets."""
    action = ctx.host.actions.get(action_id)
    if action is None:
        return no_such_action(action_id)
    if not action.has("dry_run"):
        return failure(action_id, "The action has no dry run")
    if isinstance(action, Procedure):
        return _plan(ctx, action, params, for_model)
    try:
        valid = validate(action, params)
    except Exception as error:  # noqa: BLE001 - also of the plugin's own validation
        return failure(action_id, describe(error))
    result = call_action(ctx, action, "dry_run", valid, ctx.context(action.plugin_id))
    return without_secrets(result) if for_model else result


def _plan(
    ctx: PhaseContext, procedure: Procedure, params: Mapping[str, Any], for_model: bool
) -> ActionResult:
    """The steps of a procedure, each with its dry run if it has one and its params are known.

    For a step with targets it is that of the first.
    """
    try:
        values = {"params": params_to_json(validate(procedure, params))}
        planned_steps = name_targets(procedure.steps, ctx.context(procedure.plugin_id).latest_data)
    except ValueError as error:
        return failure(procedure.id, str(error))
    steps: list[Json] = []
    for step in planned_steps:
        planned = action_of(step)
        entry: JsonObject = {"step": step.id, "action": planned.action, **outline(step)}
        try:
            entry["params"] = params_of(step, {**values, **first_item(step)})
        except MissingValue:
            entry |= {"params": planned.params, "preview": "it depends on an earlier step"}
        else:
            action = ctx.host.actions.get(planned.action)
            if action is not None and action.has("dry_run"):
                preview = dry_run(ctx, action.id, entry["params"], for_model)  # type: ignore[arg-type]
                entry["preview"] = preview.output if preview.success else f"failed: {preview.error}"
        steps.append(entry)
    return ActionResult(action=procedure.id, success=True, duration=0.0, output={"steps": steps})
