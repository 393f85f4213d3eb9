"""Plans of procedures: checks them when an agent is loaded, and fills in targets and values.

A step refers to a value by `${params.NAME}` or `${steps.ID.output.NAME}`, which is the whole text,
or a part of its question; conditions in CEL use the same names. Only earlier steps are known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema

from boyd.agent.conditions import ANY, OBJECT, ConditionError, Language, names_of
from boyd.errors import ConfigError
from boyd.models import (
    LEVELS,
    MAX_NAMED,
    MAX_STEPS,
    MAX_TARGETS,
    MAX_TARGETS_SIZE,
    Autonomy,
    AutonomyMode,
    Json,
    JsonObject,
    ObservedItems,
    ProcedureStep,
    Reversibility,
    StepAction,
)
from boyd.models.procedure import AT_ONCE
from boyd.plugin import Action, PluginHost, Procedure
from boyd.plugin.composed_action import ASK
from boyd.plugin.plugin_boundary import validate
from boyd.settings.validation import nearest
from boyd.text.references import (
    fill,
    fill_text,
    parse_reference,
    reference_texts,
    references_within,
)

_MODES: tuple[AutonomyMode, ...] = ("auto", "approval-required", "human-only")
_CLASSES: tuple[Reversibility, ...] = (
    *("read-only", "reversible", "externally-reversible"),
    *("unknown", "irreversible"),
)


def compose(host: PluginHost) -> None:
    """Check every procedure, and give it the class of its strictest step.

    Raises:
        ConfigError: a step is invalid.
    """
    for procedure in host.actions.values():
        if isinstance(procedure, Procedure):
            _Check(procedure, host.actions).run()
            _classify(procedure, host.actions)


def action_of(step: ProcedureStep) -> StepAction:
    """The action of a step; a question is one, too."""
    if step.ask is not None:
        return StepAction(action=ASK, params={"question": step.ask})
    return StepAction(action=step.action or "", params=step.params)


def params_of(step: ProcedureStep, values: Mapping[str, Any]) -> JsonObject:
    """The parameters of a step's action, with their *values* filled in.

    Raises:
        MissingValue: one of them has none.
    """
    if step.ask is not None:
        return {"question": fill_text(step.ask, values)}
    params: JsonObject = fill(step.params, values)
    return params


def name_targets(
    steps: Sequence[ProcedureStep], latest_data: Callable[[str], Sequence[JsonObject]]
) -> list[ProcedureStep]:
    """Return the *steps* with the targets of each as a list without repetitions.

    *latest_data* returns the data of the last observations of an observer.

    Raises:
        ValueError: a step has too many targets, or its observer has reported none.
    """
    return [_with_targets(step, latest_data) for step in steps]


def _with_targets(
    step: ProcedureStep, latest_data: Callable[[str], Sequence[JsonObject]]
) -> ProcedureStep:
    source = step.for_each
    if source is None:
        return step
    if isinstance(source, list):
        items = source
    else:
        items = [
            item for data in latest_data(source.observer) for item in _items(data, source.path)
        ]
        if not items:
            raise ValueError(f"step {step.id}: {source.observer} has reported no {source.path}")
    targets = list({json.dumps(item, sort_keys=True): item for item in items}.values())
    if len(targets) > MAX_TARGETS or len(json.dumps(targets)) > MAX_TARGETS_SIZE:
        most = f"at most {MAX_TARGETS}, and {MAX_TARGETS_SIZE} characters, are possible"
        raise ValueError(f"step {step.id}: it has {len(targets)} targets; {most}")
    return step.patched({"for_each": targets})


def _items(data: JsonObject, path: str) -> list[Json]:
    value: Json = data
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def fits(steps: Sequence[ProcedureStep], approved: Sequence[ProcedureStep]) -> bool:
    """Report whether *approved* are the same steps, with targets for those that are observed."""
    return len(steps) == len(approved) and all(map(_fits, steps, approved))


def _fits(step: ProcedureStep, approved: ProcedureStep) -> bool:
    if not isinstance(step.for_each, ObservedItems):
        return _with_targets(step, lambda observer: ()) == approved
    listed = isinstance(approved.for_each, list)
    return listed and step.patched({"for_each": approved.for_each}) == approved


def first_item(step: ProcedureStep) -> JsonObject:
    """The value of `item` for the first of the targets of a step, if it has some."""
    return {"item": step.for_each[0]} if isinstance(step.for_each, list) and step.for_each else {}


def outline(step: ProcedureStep) -> JsonObject:
    """The number of targets of a step, the first of them, its waves and limits, for people."""
    if not isinstance(step.for_each, list):
        return {}
    total = len(step.for_each)
    ends = wave_ends(step, total)
    sizes: list[Json] = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    limits: JsonObject = {"atOnce": step.at_once or AT_ONCE, "stopAt": step.stop_at or 1}
    return {"targets": total, "first": step.for_each[:MAX_NAMED], "waves": sizes, **limits}


def wave_ends(step: ProcedureStep, total: int) -> list[int]:
    """The number of targets after each wave; the last one has the rest."""
    ends: list[int] = []
    for size in step.wave or []:
        share = size if isinstance(size, int) else math.ceil(total * int(size[:-1]) / 100)
        ends.append(min(total, (ends[-1] if ends else 0) + share))
        if ends[-1] == total:
            return ends
    return [*ends, total]


def compensation_of(step: ProcedureStep, action: Action | None) -> StepAction | str | None:
    """The action that undoes a step, `rollback`, or None."""
    planned = step.compensate
    # Of an action that is gone nobody knows whether it had one: a person has to look.
    if planned is None and (action is None or action.has("rollback")):
        return "rollback"
    return None if planned == "none" else planned


def keep_rollback(step: ProcedureStep, actions: Mapping[str, Action]) -> ProcedureStep:
    """Store in the step how it is undone, so that no upgrade of its plugin changes that."""
    planned = compensation_of(step, actions.get(action_of(step).action))
    return step.patched({"compensate": planned}) if planned else step


def is_true(condition: str, values: Mapping[str, Any]) -> bool:
    """Evaluate a condition of a step with `params`, `steps` and `output`.

    Raises:
        ConditionError: it cannot be evaluated.
    """
    return _language().compile(condition).is_true(values)


@cache
def _language() -> Language:
    return Language({"params": OBJECT, "steps": OBJECT, "output": ANY})


class _Check:
    """The check of one procedure against the actions of its agent."""

    def __init__(self, procedure: Procedure, actions: Mapping[str, Action]) -> None:
        self._procedure = procedure
        self._actions = actions
        self._schema = _schema(procedure)
        self._earlier: list[str] = []
        self._has_item = False

    def run(self) -> None:
        steps = self._procedure.steps
        if not 0 < len(steps) <= MAX_STEPS:
            raise self._error("", f"it has {len(steps)} steps; 1 to {MAX_STEPS} are possible")
        for step in steps:
            if step.id in self._earlier:
                raise self._error(step.id, "two steps have this id")
            self._targets(step)
            self._step(step)
            self._earlier.append(step.id)

    def _targets(self, step: ProcedureStep) -> None:
        self._has_item = step.for_each is not None
        if self._has_item and self._procedure.approve == "each":
            raise self._error(step.id, "`for_each` cannot be approved step by step")
        if isinstance(step.for_each, list):
            try:
                name_targets([step], lambda observer: ())
            except ValueError as error:
                raise self._error("", str(error)) from None

    def _step(self, step: ProcedureStep) -> None:
        planned = action_of(step)
        action = self._action(step.id, planned.action)
        if step.ask is None:
            self._params(step.id, action, planned.params, self._earlier)
        for text in references_within(step.ask or ""):
            self._reference(step.id, text, self._earlier)
        self._condition(step.id, "when", step.when)
        if step.until is not None and action.reversibility != "read-only":
            raise self._error(
                step.id, f"`until` repeats {action.id}, which is not declared `read-only`"
            )
        self._condition(step.id, "until", step.until, {"output": ANY})
        undo = step.compensate
        if isinstance(undo, StepAction):
            undoing = self._action(step.id, undo.action)
            self._params(f"{step.id}.compensate", undoing, undo.params, [*self._earlier, step.id])
        elif undo == "rollback" and not action.has("rollback"):
            raise self._error(step.id, f"compensate: {action.id} has no rollback")
        if step.otherwise is not None:
            instead = self._action(step.id, step.otherwise.action)
            self._params(f"{step.id}.else", instead, step.otherwise.params, self._earlier)

    def _action(self, step: str, id: str) -> Action:
        action = self._actions.get(id)
        if action is None:
            raise self._error(step, f"there is no action {id!r}{nearest(id, self._actions)}")
        if isinstance(action, Procedure):
            raise self._error(step, f"{id} is a procedure, and a step cannot be one")
        return action

    def _condition(
        self, step: str, name: str, text: str | None, more: Mapping[str, str] | None = None
    ) -> None:
        if text is None:
            return
        kinds = {"output": ANY, "state": "string"}
        earlier = {f"steps.{id}.{part}": k for id in self._earlier for part, k in kinds.items()}
        try:
            Language({**names_of(self._schema), **earlier, **(more or {})}).compile(text)
        except ConditionError as error:
            raise self._error(step, f"{name}: {error}") from None

    def _params(
        self, step: str, action: Action, params: JsonObject, earlier: Sequence[str]
    ) -> None:
        references = list(reference_texts(params))
        for text in references:
            self._reference(step, text, earlier)
        schema = _schema(action)
        if schema is not None and not schema.get("additionalProperties"):
            names: Any = schema.get("properties", {})
            if strange := next((name for name in params if name not in names), None):
                problem = f"{action.id} takes no parameter {strange!r}{nearest(strange, names)}"
                raise self._error(step, problem)
        missing = [name for name in _mandatory_params(schema) if name not in params]
        if missing:
            raise self._error(step, f"{action.id} needs the parameter {missing[0]!r}")
        if not references:
            try:
                validate(action, params)
            except ValueError as error:
                raise self._error(step, str(error)) from None

    def _reference(self, step: str, text: str, earlier: Sequence[str]) -> None:
        reference = parse_reference(text)
        if reference is not None and reference.name == "item" and self._has_item:
            return
        if reference is None or reference.name not in ("params", "steps") or not reference.path:
            syntax = (
                "a reference is the whole text: ${params.NAME} or ${steps.ID.output.NAME}, or "
                "${item} with `for_each`"
            )
            raise self._error(step, f"{text!r}: {syntax}")
        first, *rest = reference.path
        if reference.name == "params":
            names = names_of(self._schema)
            if f"params.{first}" not in names and "params" not in names:
                raise self._error(step, f"{text}: there is no parameter {first!r}")
            return
        if first not in earlier:
            ids = [planned.id for planned in self._procedure.steps]
            problem = "comes later" if first in ids else f"does not exist{nearest(first, earlier)}"
            raise self._error(step, f"{text}: step {first!r} {problem}")
        if not rest or rest[0] not in ("output", "state"):
            raise self._error(step, f"{text}: a step has `output` and `state`")

    def _error(self, step: str, problem: str) -> ConfigError:
        where = f"step {step!r}: " if step else ""
        return ConfigError(f"procedure {self._procedure.id}: {where}{problem}")


def _classify(procedure: Procedure, actions: Mapping[str, Action]) -> None:
    """Give the procedure at least the classes of its steps and of what compensates them."""
    parts = [actions[action.action] for action in acting(procedure.steps)]
    procedure.risk = max([procedure.risk, *(action.risk for action in parts)], key=LEVELS.index)
    classes = [action.reversibility for action in parts]
    procedure.reversibility = max(classes, key=_CLASSES.index, default="read-only")
    if procedure.approve == "each":
        return  # each step asks a person by itself
    own = [procedure.autonomy, *(action.autonomy for action in parts)]
    least = [action.min_confidence for action in own if action.min_confidence is not None]
    procedure.autonomy = Autonomy(
        mode=max((action.mode for action in own), key=_MODES.index),
        min_confidence=max(least, default=None),
    )


def acting(steps: Sequence[ProcedureStep]) -> Iterator[StepAction]:
    """Every action call that *steps* name: forward, alternative and compensating ones."""
    for step in steps:
        if step.ask is None:
            yield action_of(step)
        if isinstance(step.compensate, StepAction):
            yield step.compensate
        if step.otherwise is not None:
            yield step.otherwise


def _mandatory_params(schema: Mapping[str, Any] | None) -> list[str]:
    return list(schema.get("required", [])) if schema else []


def _schema(action: Action) -> JsonObject | None:
    """Return the JSON Schema of an action's params, if they are described."""
    if action.params is None:
        return None
    try:
        return action.params.model_json_schema(by_alias=True)
    except PydanticInvalidForJsonSchema:
        return None
