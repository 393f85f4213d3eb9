"""Actions that are composed of actions, and the plugin that holds those of an agent file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

from boyd.models import Autonomy, Level, ProcedureApproval, ProcedureStep
from boyd.plugin.components import Action
from boyd.plugin.plugin_base import Plugin
from boyd.text.references import LONGEST_TEXT

#: The id of the plugin, and of the action that asks a person.
PROCEDURES = "procedures"
ASK = f"{PROCEDURES}:ask"


class NoParams(BaseModel):
    """The params of a procedure that takes none."""

    model_config = ConfigDict(extra="forbid")


class Procedure(Action):
    """An action that executes other actions, step by step.

    Its risk, reversibility and autonomy are at least those of the strictest step, and are set when
    the agent is loaded.

    Attributes:
        steps: in order; at most 20.
        within: seconds for the whole.
        approve: whether a person who approves it approves the whole, or each step.
        params: the pydantic model of its parameters, if it takes any.
        declared_risk: its risk without that of the steps; set by `bind`.
    """

    functions: ClassVar = {}

    steps: Sequence[ProcedureStep] = ()
    within: float = 3600.0
    concurrency: int | None = 1
    approve: ProcedureApproval = "whole"
    declared_risk: Level = "low"

    def bind(self, plugin_id: str) -> Self:
        """Also take no params if it declares none."""
        self.params = self.params or NoParams
        super().bind(plugin_id)
        self.declared_risk = self.risk
        return self

    def has(self, function: str) -> bool:
        """Report whether it has *function*: only a dry run, which shows the plan."""
        return function == "dry_run"

    @property
    def steps_to_approve(self) -> list[ProcedureStep]:
        """The steps that one approval covers: none, if a person approves each."""
        return list(self.steps) if self.approve == "whole" else []

    def _classify(self) -> None:
        """Leave the reversibility to the steps."""


class _Question(BaseModel):
    """A question to a person."""

    model_config = ConfigDict(extra="forbid")

    question: str = Field(min_length=1, max_length=LONGEST_TEXT)


class _Ask(Action):
    """Asks a person to approve that a procedure continues; changes nothing by itself."""

    name = "ask"
    title = "Continue the procedure"
    description = "Asks a person whether a procedure continues."
    reversibility = "read-only"
    autonomy = Autonomy(mode="approval-required")

    def execute(self, params: _Question) -> str:
        """Return the question that was approved."""
        return params.question


class ProcedurePlugin(Plugin):
    """The procedures of an agent file, and the action that asks a person in a step."""

    id = PROCEDURES

    def __init__(self, procedures: Iterable[Procedure] = (), **options: Any) -> None:
        """Hold the *procedures* that the agent file declares."""
        super().__init__(**options)
        self.components = (*procedures, _Ask())
