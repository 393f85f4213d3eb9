"""Procedures in an agent file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator

from boyd.models import MAX_STEPS, Level, ProcedureApproval, ProcedureStep
from boyd.settings.permissions import AgentGroup

ProcedureName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
ParamType = Literal["string", "integer", "number", "boolean"]
_TYPES: dict[ParamType, type] = {"string": str, "integer": int, "number": float, "boolean": bool}


class ProcedureSettings(AgentGroup):
    """A procedure: an action composed of actions; times in seconds.

    Attributes:
        title: shown to people; the default is its id.
        description: one line.
        params: the type of each parameter.
        target: the parameter that names what it acts on.
        risk: its risk, if that is higher than the risk of each step.
        within: the time for the whole.
        concurrency: how many of it may be in flight per target; 0: any number.
        approve: whether a person approves the whole, or each step.
        steps: in order.
    """

    title: str = Field(default="", max_length=200)
    description: str = Field(default="", max_length=1000)
    params: dict[str, ParamType] = Field(default_factory=dict)
    target: str | None = None
    risk: Level = "low"
    within: float = Field(default=3600.0, gt=0, le=7 * 86400)
    concurrency: int = Field(default=1, ge=0)
    approve: ProcedureApproval = "whole"
    steps: list[ProcedureStep] = Field(min_length=1, max_length=MAX_STEPS)

    @field_validator("params")
    @classmethod
    def _named(cls, params: dict[str, ParamType]) -> dict[str, ParamType]:
        bad = [name for name in params if not name.isidentifier() or name.startswith("_")]
        if bad:
            raise ValueError(f"{bad[0]!r} is not a name: use letters, digits and `_`")
        return params

    def model(self, name: str) -> type[BaseModel]:
        """The pydantic model of the parameters, all of which are required."""
        fields: dict[str, Any] = {one: (_TYPES[kind], ...) for one, kind in self.params.items()}
        config = ConfigDict(extra="forbid", strict=True)
        found: type[BaseModel] = create_model(f"{name} params", __config__=config, **fields)
        return found
