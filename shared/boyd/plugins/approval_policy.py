"""The plugin `approval-policy`: it requires approvals by risk, class, time, action and target."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, time
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, model_validator

from boyd.models import Decision, Level, Reversibility
from boyd.plugin import Action, Context, Plugin, hook
from boyd.settings.permissions import WEEKDAYS, TimeZone, Weekday, WindowHours, matches_any


class Hours(BaseModel):
    """The hours in which actions need no approval: from `start` until before `end`.

    If `end` is before `start` they cross midnight, and the time after it belongs to the weekday on
    which they began.

    Attributes:
        start: the first hour, 0 to 23.
        end: the hour before which they end, 1 to 24.
        timezone: the name of the time zone.
        weekdays: the days of the week, such as `mon`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: int = Field(ge=0, le=23)
    end: int = Field(ge=1, le=24)
    timezone: TimeZone = "UTC"
    weekdays: list[Weekday] = Field(default=list(WEEKDAYS), min_length=1)

    @model_validator(mode="after")
    def _not_empty(self) -> Hours:
        if self.start == self.end:
            raise ValueError("start and end are the same; omit the hours for the whole day")
        return self

    def include(self, now: datetime) -> bool:
        """True if *now* is within the hours."""
        start, end = time(self.start), time(self.end % 24)
        hours = WindowHours(start=start, end=end, weekdays=self.weekdays)
        return hours.include(now.astimezone(ZoneInfo(self.timezone)))


class ApprovalRules(Plugin):
    """Requires approval for decisions that are risky, out of hours, or listed; never lifts it.

    It is a guard: if it fails, the action is not executed. Hooks run in plugin order and may change
    a decision again, so place this plugin last.
    """

    id = "approval-policy"

    class Options(Plugin.Options):
        """The plugin's options; any one that applies requires approval.

        Attributes:
            risks: risks of the decision or its action.
            reversibility: classes of reversibility of the action.
            hours: hours in which actions need no approval; always if absent.
            actions: patterns of action ids, such as `process:*`.
            targets: patterns of values by parameter, such as `{name: [db-*]}`; each item of a list
                counts.
        """

        risks: list[Level] = Field(default=["high", "critical"])
        reversibility: list[Reversibility] = Field(default=["irreversible"])
        hours: Hours | None = None
        actions: list[str] = Field(default_factory=list)
        targets: dict[str, list[str]] = Field(default_factory=dict)

    options: Options

    @hook(fail_closed=True)
    def on_decide(
        self, decision: Decision, action: Action | None, ctx: Context
    ) -> dict[str, bool] | None:
        """Require approval if a rule applies; `no-op` never needs one."""
        if decision.is_no_op or decision.requires_approval:
            return None
        risks = {decision.risk, action.risk} if action else {decision.risk}
        reasons = list(self._reasons(decision, risks, ctx.now()))
        if action and action.reversibility in self.options.reversibility:
            reasons.append(f"it is {action.reversibility}")
        if not reasons:
            return None
        ctx.logger.info("%s needs approval: %s", decision.action, "; ".join(reasons))
        return {"requires_approval": True}

    def _reasons(self, decision: Decision, risks: set[Level], now: datetime) -> Iterator[str]:
        options = self.options
        for risk in sorted(risks & set(options.risks)):
            yield f"risk {risk}"
        if options.hours and not options.hours.include(now):
            yield "outside the configured hours"
        if matches_any(options.actions, decision.action):
            yield "the action is listed"
        for name, patterns in options.targets.items():
            value = decision.params.get(name)
            items = value if isinstance(value, list) else [value]
            if any(item is not None and matches_any(patterns, str(item)) for item in items):
                yield f"{name} is listed"
