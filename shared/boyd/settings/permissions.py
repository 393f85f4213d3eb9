"""Settings that decide when actions run alone, and who approves them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, time, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from boyd.models import (
    LEVELS,
    MAX_STEPS,
    ApprovalPolicy,
    Budget,
    Duration,
    EarnedAutonomy,
    Level,
    ProcedureApproval,
    ProcedureStep,
    Reversibility,
    Sandbox,
)
from boyd.settings import schedules

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEKDAYS: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

TimeZone = Annotated[str, AfterValidator(schedules.check_zone)]
CronExpression = Annotated[str, AfterValidator(schedules.check_cron)]

#: Time within which hours of the day occur, also if clocks skip them once.
_FORTNIGHT = timedelta(days=15)


class AgentGroup(BaseModel):
    """A group of an agent's settings."""

    # Inputs may hold passwords, as URLs do.
    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )


def _check_policy(policy: ApprovalPolicy) -> ApprovalPolicy:
    """Reject a policy that nobody can meet."""
    if policy.impossible:
        raise ValueError(policy.impossible)
    return policy


class PolicyRule(AgentGroup):
    """The approval policy for some actions.

    `actions` are patterns of ids. `risk` compares with the risk of the action or of the decision,
    whichever is higher, `reversibility` with that of the action; empty matches any. `when` is a
    condition.
    """

    actions: list[str] = ["*"]
    risk: list[Level] = []
    reversibility: list[Reversibility] = []
    when: str | None = None
    required: ApprovalPolicy

    @field_validator("required")
    @classmethod
    def _possible(cls, required: ApprovalPolicy) -> ApprovalPolicy:
        return _check_policy(required)

    def fits(self, action: str, risk: Level, reversibility: Reversibility) -> bool:
        """Report whether the rule applies to such an action, apart from its condition."""
        classed = not self.reversibility or reversibility in self.reversibility
        return (
            matches_any(self.actions, action) and classed and (not self.risk or risk in self.risk)
        )


class ApprovalSettings(AgentGroup):
    """Lifetime and policies of approvals; times in seconds.

    The first of `policies` that matches an action applies, or else `required`.
    """

    auto_expire: bool = True
    ttl: Duration = Field(default=3600.0, ge=0)
    max_history: int = Field(default=500, gt=0)
    max_age: Duration = Field(default=30 * 86400.0, gt=0)
    required: ApprovalPolicy = ApprovalPolicy()
    policies: list[PolicyRule] = []

    @field_validator("required")
    @classmethod
    def _possible(cls, required: ApprovalPolicy) -> ApprovalPolicy:
        return _check_policy(required)

    def possible_policies(
        self, action: str, reversibility: Reversibility
    ) -> Iterator[tuple[str, ApprovalPolicy]]:
        """The policies for an action, whatever its situation and risk are, by setting."""
        for number, rule in enumerate(self.policies):
            if not any(rule.fits(action, risk, reversibility) for risk in LEVELS):
                continue
            yield f"approvals.policies[{number}]", rule.required
            if rule.when is None and not rule.risk:
                return  # none after it ever applies
        yield "approvals.required", self.required


class AutonomyRule(AgentGroup):
    """When an action may run alone.

    `when` is a condition. With `mode` *earned* it has to earn that in each class of situation, by
    verified outcomes, as `EarnedAutonomy` says. `confidence` is what is compared with the least
    confidence of the action: the stated one, or what that is worth by the track record.
    """

    when: str | None = None
    mode: Literal["declared", "earned"] = "declared"
    at_least: float = Field(default=0.95, ge=0.5, lt=1)
    after: int = Field(default=20, ge=1, le=10_000)
    lasts: float = Field(default=30 * 86400.0, gt=0, le=366 * 86400.0)
    false_grants: float = Field(default=0.05, gt=0, le=0.5)
    holdout: float = Field(default=0.1, ge=0, le=0.5)
    require_uplift: bool = True
    burst: float = Field(default=0.0, ge=0, le=7 * 86400.0)
    confidence: Literal["stated", "calibrated"] = "stated"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        needless = sorted(EarnedAutonomy.model_fields.keys() & self.model_fields_set)
        if self.mode != "earned" and needless:
            raise ValueError(f'{", ".join(needless)}: only with mode = "earned"')
        if self.mode == "earned" and self.require_uplift and not self.holdout:
            raise ValueError(
                "nothing shows an uplift without a holdout; set require_uplift = false"
            )
        if self.when is None and (self.mode, self.confidence) == ("declared", "stated"):
            raise ValueError("it changes nothing; set `when`, `mode` or `confidence`")
        return self

    @property
    def earning_rule(self) -> EarnedAutonomy | None:
        """The rule by which the action earns to run alone, if it has to."""
        fields = {name: getattr(self, name) for name in EarnedAutonomy.model_fields}
        return EarnedAutonomy(**fields) if self.mode == "earned" else None


class WindowHours(AgentGroup):
    """The hours of some weekdays: from `start` until before `end`.

    If `end` is not after `start` they cross midnight, and the time after it belongs to the weekday
    on which they began.
    """

    start: time = time()
    end: time = time()
    weekdays: list[Weekday] = Field(default=list(WEEKDAYS), min_length=1)

    @field_validator("start", "end", mode="wrap")
    @classmethod
    def _minute(cls, value: object, read: Callable[[object], time]) -> time:
        try:
            at = read(value)
        except ValidationError:
            at = time.max
        if at.second or at.microsecond or at.tzinfo:
            raise ValueError("write hours and minutes, as 08:30")
        return at

    def include(self, local: datetime) -> bool:
        """Report whether a local time is within the hours."""
        at = local.time()
        if self.start < self.end:
            return self.start <= at < self.end and self._on(local)
        if at < self.end:
            return self._on(local - timedelta(days=1))
        return at >= self.start and self._on(local)

    def begin(self, local: datetime) -> datetime | None:
        """The first minute after a local time that is within the hours, in UTC."""
        minutes = schedules.minutes_after(local, _FORTNIGHT)
        zone = local.tzinfo
        return next((at for at in minutes if self.include(at.astimezone(zone))), None)

    def _on(self, day: datetime) -> bool:
        return WEEKDAYS[day.weekday()] in self.weekdays


class Window(AgentGroup):
    """The times at which some actions may run alone.

    `actions` are patterns of ids, `when` is a condition under which the window counts for them.
    `open` has cron expressions, as ranges of minutes, and hours; empty: always. `freezes` is an
    iCalendar file with times at which it is closed.
    """

    name: str = Field(default="", max_length=100)
    actions: list[str] = ["*"]
    when: str | None = None
    open: list[CronExpression | WindowHours] = []
    timezone: TimeZone = "UTC"
    freezes: Path | None = None
    outside: Literal["ask", "wait"] = "ask"

    @model_validator(mode="after")
    def _has_times(self) -> Self:
        if not self.open and self.freezes is None:
            raise ValueError("it is always open; set `open` or `freezes`")
        return self

    def is_open(self, now: datetime) -> bool:
        """Report whether `open` includes that time."""
        local = now.astimezone(ZoneInfo(self.timezone))
        return not self.open or any(_includes(part, local) for part in self.open)

    def opens(self, now: datetime) -> datetime | None:
        """Return the first minute after *now* that `open` includes, in UTC, if one comes soon."""
        local = now.astimezone(ZoneInfo(self.timezone))
        openings = [_begin(part, local) for part in self.open]
        return min((at for at in openings if at is not None), default=None)


class SecretRule(AgentGroup):
    """A permission of actions to use secrets, for all decisions alike.

    All are patterns: `references`, ids of `actions`, `params` that may hold the secret (nested ones
    as `headers.token`), and `targets` that the actions act on.
    """

    references: list[str] = Field(min_length=1)
    actions: list[str] = Field(min_length=1)
    params: list[str] = Field(min_length=1)
    targets: list[str] = Field(default=["*"], min_length=1)

    def permits(self, reference: str, action: str, param: str, target: str) -> bool:
        """Report whether the action may use that secret in that parameter, on *target*."""
        pairs = [
            (self.references, reference),
            (self.actions, action),
            (self.params, param),
            (self.targets, target),
        ]
        return all(matches_any(patterns, text) for patterns, text in pairs)


class PermissionSettings(AgentGroup):
    """Settings that decide whether an action runs alone, waits, or needs a person.

    `sandbox` has limits of actions, which are tighter than their own. `secrets` says which secrets
    actions may use besides those that the agent file names for them.
    """

    approvals: ApprovalSettings = ApprovalSettings()
    budgets: dict[str, Budget] = Field(default_factory=dict)
    autonomy: dict[str, AutonomyRule] = Field(default_factory=dict)
    windows: list[Window] = []
    sandbox: dict[str, Sandbox] = Field(default_factory=dict)
    secrets: list[SecretRule] = []


def matches_any(patterns: list[str], action: str) -> bool:
    """Report whether one of the patterns matches the id of an action."""
    return any(fnmatchcase(action, pattern) for pattern in patterns)


def _includes(part: str | WindowHours, local: datetime) -> bool:
    return schedules.includes(part, local) if isinstance(part, str) else part.include(local)


def _begin(part: str | WindowHours, local: datetime) -> datetime | None:
    return schedules.begins(part, local) if isinstance(part, str) else part.begin(local)


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
    def _check_names(cls, params: dict[str, ParamType]) -> dict[str, ParamType]:
        bad = [name for name in params if not name.isidentifier() or name.startswith("_")]
        if bad:
            raise ValueError(f"{bad[0]!r} is not a name: use letters, digits and `_`")
        return params

    def model(self, name: str) -> type[BaseModel]:
        """The pydantic model of the parameters, all of which are required."""
        fields: dict[str, Any] = {field: (_TYPES[kind], ...) for field, kind in self.params.items()}
        config = ConfigDict(extra="forbid", strict=True)
        model: type[BaseModel] = create_model(f"{name} params", __config__=config, **fields)
        return model
